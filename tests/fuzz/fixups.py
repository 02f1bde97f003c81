"""What the mutator puts right again, by name. Apart from mutate.py, which needs a compiler."""

from enum import IntEnum


class Fixup(IntEnum):
    """What is put right after a mutation, most of the time, so that the inside is reached."""

    NONE = 0
    BATCHES = 1
    """The input is record batches: magic, length of the last one, CRC of each."""
    SNAPSHOT = 2
    """The input is a producer snapshot: CRC, and the count where the size fits a count."""
    FRAME = 3
    """The input begins with the size of a frame."""
    ARCHIVE = 4
    """The input is an archive (see archive.py) whose files are put right by their kinds."""
