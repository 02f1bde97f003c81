"""A walk over a message before it is decoded: its arrays must fit into its bytes.

kio's native reader makes room for as many elements as an array says to have. A request of twenty bytes can
so ask for more memory than there is, which ends the process instead of raising. ``check`` follows the same
schema, reads the lengths only, and refuses what cannot be, also a null array where the schema has none (kio
lets it pass as None, which no handler expects). It is made once per message class, as closures,
and costs about a microsecond for a small request.

On the way it counts the elements of all arrays: what a message costs to decode and to answer goes by their number,
not by its bytes, as an element of two bytes may become an object of hundreds.
"""

import sys
from collections.abc import Callable
from dataclasses import Field, fields, is_dataclass
from functools import cache
from struct import Struct
from types import NoneType
from typing import Any, Final, TypeAlias, get_args, get_origin

from holdfast.model.errors import InvalidRequestError
from holdfast.protocol.wire import varint

Buffer: TypeAlias = bytes | bytearray | memoryview
_Walk: TypeAlias = Callable[[Buffer, int, int, list[int]], int]
"""(buffer, position, end, [elements that may still come]) -> position after the thing."""

_SIZES: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "uuid": 16,
    "error_code": 2,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
    "datetime_i64": 8,
}
_SHORT, _INT = Struct(">h"), Struct(">i")


def check(entity_type: Any, buf: Buffer, pos: int = 0, most: int | None = None) -> int:
    """How many elements its arrays have together. InvalidRequestError unless ``buf`` from ``pos`` can hold the message,
    or at the first element beyond ``most``. Bytes after it are allowed."""
    limit = sys.maxsize if most is None else most
    left = [limit]
    try:
        _entity(entity_type)(buf, pos, len(buf), left)
    except _TooManyError:
        raise InvalidRequestError(f"{entity_type.__name__} names too much: expected {most} elements at most") from None
    except (IndexError, ValueError, OverflowError) as e:
        raise InvalidRequestError(f"{entity_type.__name__} is cut short or wrong: {e}") from None
    return limit - left[0]


class _TooManyError(Exception):
    """More elements than may come."""


def _advance(pos: int, size: int, end: int) -> int:
    pos += size
    if pos > end:
        raise ValueError(f"{pos - end} bytes are missing")
    return pos


def _fixed(size: int) -> _Walk:
    def walk(buf: Buffer, pos: int, end: int, left: list[int]) -> int:
        return _advance(pos, size, end)

    return walk


def _compact_bytes(buf: Buffer, pos: int, end: int, left: list[int]) -> int:
    length, pos = varint(buf, pos)
    return _advance(pos, length - 1, end) if length else pos


def _legacy_string(buf: Buffer, pos: int, end: int, left: list[int]) -> int:
    _advance(pos, 2, end)
    return _advance(pos + 2, max(_SHORT.unpack_from(buf, pos)[0], 0), end)


def _legacy_bytes(buf: Buffer, pos: int, end: int, left: list[int]) -> int:
    _advance(pos, 4, end)
    return _advance(pos + 4, max(_INT.unpack_from(buf, pos)[0], 0), end)


def _array(item: _Walk, item_size: int | None, compact: bool, nullable: bool) -> _Walk:
    """``item_size`` is given when every element has it."""

    def walk(buf: Buffer, pos: int, end: int, left: list[int]) -> int:
        if compact:
            count, pos = varint(buf, pos)
            count -= 1
        else:
            _advance(pos, 4, end)
            count = _INT.unpack_from(buf, pos)[0]
            pos += 4
        if count <= 0:
            if count < 0 and not nullable:
                raise ValueError(f"null before byte {pos} where an array is expected")
            return pos
        # An element has a byte at least, so this bounds what the reader will make room for.
        if count > end - pos:
            raise ValueError(f"an array of {count} elements in {end - pos} bytes")
        left[0] -= count
        if left[0] < 0:
            raise _TooManyError
        if item_size is not None:
            return _advance(pos, count * item_size, end)
        for _ in range(count):
            pos = item(buf, pos, end, left)
        return pos

    return walk


def _tags(known: dict[int, _Walk]) -> _Walk:
    def walk(buf: Buffer, pos: int, end: int, left: list[int]) -> int:
        count, pos = varint(buf, pos)
        if count > end - pos:
            raise ValueError(f"{count} tagged fields in {end - pos} bytes")
        for _ in range(count):
            tag, pos = varint(buf, pos)
            size, pos = varint(buf, pos)
            after = _advance(pos, size, end)
            inner = known.get(tag)
            if inner is not None and inner(buf, pos, after, left) != after:
                raise ValueError(f"tagged field {tag} is not as long as it says")
            pos = after
        return pos

    return walk


def _nullable(item: _Walk) -> _Walk:
    def walk(buf: Buffer, pos: int, end: int, left: list[int]) -> int:
        return pos + 1 if buf[pos] == 0xFF else item(buf, pos + 1, end, left)

    return walk


def _primitive(kind: str, flexible: bool) -> tuple[_Walk, int | None]:
    size = _SIZES.get(kind)
    if size is not None:
        return _fixed(size), size
    if flexible:
        return _compact_bytes, None
    return (_legacy_string if kind == "string" else _legacy_bytes), None


def _field(field: Field[Any], flexible: bool, tagged: bool) -> tuple[_Walk, int | None]:
    kind: Any = field.type  # Any: a class, a union or a tuple at run time
    members = [member for member in get_args(kind) if member is not NoneType]
    optional = get_origin(kind) is not tuple and NoneType in get_args(kind)
    if optional:
        kind = members[0]
    if get_origin(kind) is tuple:
        element: Any = get_args(kind)[0]
        if is_dataclass(element):
            walk = _array(_entity(element), _entity_size(element), flexible, optional)  # type: ignore[arg-type]
            return walk, None
        item, size = _primitive(field.metadata["kafka_type"], flexible)
        return _array(item, size, flexible, optional), None
    if is_dataclass(kind):
        walk = _entity(kind)  # type: ignore[arg-type]
        return (_nullable(walk) if optional and not tagged else walk), None
    return _primitive(field.metadata["kafka_type"], flexible)


@cache
def _entity_size(entity_type: Any) -> int | None:
    """Bytes of the entity when they are always the same."""
    if entity_type.__flexible__:
        return None
    total = 0
    for field in fields(entity_type):
        size = _field(field, False, False)[1]
        if size is None:
            return None
        total += size
    return total


@cache
def _entity(entity_type: Any) -> _Walk:
    flexible: bool = entity_type.__flexible__
    steps: list[_Walk] = []
    known: dict[int, _Walk] = {}
    run = 0  # bytes of fixed-size fields in a row: one step
    for field in fields(entity_type):
        tag = field.metadata.get("tag")
        walk, size = _field(field, flexible, tag is not None)
        if tag is not None:
            known[tag] = walk
        elif size is not None:
            run += size
        else:
            if run:
                steps.append(_fixed(run))
                run = 0
            steps.append(walk)
    if run:
        steps.append(_fixed(run))
    if flexible:
        steps.append(_tags(known))

    def walk_entity(buf: Buffer, pos: int, end: int, left: list[int]) -> int:
        for step in steps:
            pos = step(buf, pos, end, left)
        return pos

    return walk_entity
