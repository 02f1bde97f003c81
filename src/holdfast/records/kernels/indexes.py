"""The message indexes that Confluent's format has between the schema id and a Protobuf message."""

from typing import Any

from holdfast.records.kernels.jit import as_source, as_target, jit
from holdfast.records.kernels.walk import zigzag

__all__ = ["as_source", "as_target", "index_sizes"]

MAX_INDEX = 64  # of messages in messages


@jit
def index_sizes(source: Any, starts: Any, stops: Any, sizes: Any) -> None:
    """The bytes of the message indexes that Confluent's format has before a message; 0 where there are none."""
    for row in range(len(starts)):
        stop = int(stops[row])
        count, at = zigzag(source, int(starts[row]), stop)
        if at >= 0 and (count < 0 or count > MAX_INDEX):
            at = -1
        for _i in range(count):
            if at < 0:
                break
            _, at = zigzag(source, at, stop)
        sizes[row] = at - int(starts[row]) if at >= 0 else 0
