"""What can be wrong with a table of the lake. Each message names the table, the value, and what was expected."""


class LakeError(RuntimeError):
    """Root of this package's errors."""


class PositionMovedError(LakeError):
    """The table does not end where the batch begins: another writer was there. Nothing was written."""


class PositionError(LakeError):
    """The table's own word about where it ends cannot be used: lost, damaged, or of a newer format."""


class HoleError(LakeError):
    """What a batch brings does not join on to where the table ends: offsets are missing or come twice."""


class AttemptTooOldError(LakeError):
    """The attempt began too long ago to be committed: clean-up may have taken its files."""


class CountError(LakeError):
    """The rows in the files are not those that the batch says."""


class FileMissingError(LakeError):
    """A file of a batch cannot be seen by the one who commits it."""


class AlreadyThereError(LakeError):
    """Create-if-absent found something."""


class StoreError(LakeError):
    """A place that cannot keep a table: unknown, or without create-if-absent."""


class TableError(LakeError):
    """A location that holds another thing than the table that was asked for, or a table that cannot be written so."""


class ConflictError(LakeError):
    """Commits of others came between each time, and the bounded number of tries is used up. Nothing was written."""
