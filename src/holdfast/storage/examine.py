"""A log's batches, read again and held against their checksums, on the disk's thread: somebody doubts them (K18-03).

Owns the verdict on what lies in the file now. Never changes anything; what follows is decided elsewhere.
"""

from holdfast.model.errors import CorruptRecordError
from holdfast.model.types import Offset
from holdfast.records.batch import crc_ok, iter_headers
from holdfast.storage.log import Log


def examine(log: Log, offset: Offset, max_bytes: int) -> CorruptRecordError | None:
    """What is wrong with the batches from the one with ``offset`` on, about ``max_bytes`` of them and at least one.

    None: nothing is. OffsetOutOfRangeError, KafkaStorageError: they cannot be read at all, which is another matter.
    """
    try:
        found = log.read(offset, max_bytes, log.view.end_offset, blocking=True)
        if found is None:
            return None
        data, end = found.read(), 0
        for position, header in iter_headers(data):
            end = position + header.size
            if not crc_ok(data, position, header):
                return CorruptRecordError(
                    f"{log.path}: the batch of offsets {header.base_offset} to {header.last_offset}, {header.size} "
                    f"bytes, has not the CRC {header.crc:#010x} that it says"
                )
        if not end:
            return CorruptRecordError(f"{log.path}: there is no whole batch at offset {offset}")
    except CorruptRecordError as e:
        return CorruptRecordError(f"{log.path}: {e}")
    return None
