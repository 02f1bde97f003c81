"""The few primitives that the hand-written codecs share: varints, strings, topic ids, tagged fields.

Only for Produce and Fetch, where every Python call counts; everything else goes through kio. Reading functions
return (value, position after it) and raise IndexError or ValueError beyond the buffer; the codecs turn that into
InvalidRequestError.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, TypeAlias
from uuid import UUID

Topic: TypeAlias = str | UUID
"""A topic on the wire: its name, or its id in versions that have ids."""
NodeEndpoint: TypeAlias = tuple[int, str, int, str | None]
"""(broker id, host, port, rack) of a leader that an answer names."""

INT: Final = Struct(">i")
SHORT: Final = Struct(">h")
_TWO_INTS: Final = Struct(">ii")
_ONE_BYTE: Final = tuple(bytes((n,)) for n in range(128))


def varint(buf: memoryview | bytes | bytearray, pos: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes."""
    byte = buf[pos]
    if byte < 0x80:
        return byte, pos + 1
    value, shift = byte & 0x7F, 7
    while True:
        pos += 1
        byte = buf[pos]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos + 1
        shift += 7
        if shift > 28:
            raise ValueError(f"varint at byte {pos} is longer than five bytes")


def uvarint(value: int) -> bytes:
    """``value`` >= 0 as an unsigned varint."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_string(buf: memoryview, pos: int, flexible: bool) -> tuple[str | None, int]:
    """A nullable string, compact or with two bytes of length."""
    if flexible:
        length, pos = varint(buf, pos)
        length -= 1
    else:
        length = SHORT.unpack_from(buf, pos)[0]
        pos += 2
    if length < 0:
        return None, pos
    end = pos + length
    if end > len(buf):
        raise ValueError(f"a string of {length} bytes at byte {pos} of {len(buf)}")
    return str(buf[pos:end], "utf-8"), end


def read_count(buf: memoryview, pos: int, flexible: bool) -> tuple[int, int]:
    """The number of elements of an array; a null array has none. Never more than the bytes that are left."""
    if flexible:
        count, pos = varint(buf, pos)
        count -= 1
    else:
        count = INT.unpack_from(buf, pos)[0]
        pos += 4
    if count > len(buf) - pos:
        raise ValueError(f"an array of {count} elements in {len(buf) - pos} bytes")
    return count, pos


def read_topic(buf: memoryview, pos: int, flexible: bool, by_id: bool) -> tuple[Topic, int]:
    """A topic's id or name."""
    if by_id:
        end = pos + 16
        return uuid_of(bytes(buf[pos:end])), end  # ValueError if that is not 16 bytes
    name, pos = read_string(buf, pos, flexible)
    if name is None:
        raise ValueError(f"no topic name at byte {pos}")
    return name, pos


@lru_cache(maxsize=4096)
def uuid_of(raw: bytes) -> UUID:
    """The UUID of 16 bytes. Making one costs more than looking it up."""
    return UUID(bytes=raw)


def skip_tags(buf: memoryview | bytes | bytearray, pos: int) -> int:
    """The position after the tagged fields at ``pos``."""
    count, pos = varint(buf, pos)
    for _ in range(count):
        _, pos = varint(buf, pos)
        size, pos = varint(buf, pos)
        pos += size
    if pos > len(buf):
        raise ValueError(f"tagged fields up to byte {pos} of {len(buf)}")
    return pos


def read_tags(buf: memoryview, pos: int) -> tuple[dict[int, memoryview], int]:
    """The tagged fields at ``pos``, undecoded."""
    count, pos = varint(buf, pos)
    found = {}
    for _ in range(count):
        tag, pos = varint(buf, pos)
        size, pos = varint(buf, pos)
        found[tag] = buf[pos : pos + size]
        pos += size
    if pos > len(buf):
        raise ValueError(f"tagged fields up to byte {pos} of {len(buf)}")
    return found, pos


def compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    raw = text.encode()
    return uvarint(len(raw) + 1) + raw


def legacy_string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    raw = text.encode()
    return SHORT.pack(len(raw)) + raw


@lru_cache(maxsize=4096)
def topic_bytes(topic: Topic, flexible: bool) -> bytes:
    """A topic's id, or its name."""
    if isinstance(topic, UUID):
        return topic.bytes
    return compact_string(topic) if flexible else legacy_string(topic)


def count_bytes(count: int, flexible: bool) -> bytes:
    """The length of an array."""
    return uvarint(count + 1) if flexible else INT.pack(count)


def tag_bytes(tag: int, value: bytes) -> bytes:
    """One tagged field."""
    return uvarint(tag) + uvarint(len(value)) + value


def leader_bytes(leader: tuple[int, int]) -> bytes:
    """The structure (leader id, leader epoch)."""
    return _TWO_INTS.pack(*leader) + b"\0"


def node_endpoints_tags(nodes: Sequence[NodeEndpoint]) -> bytes:
    """The closing tagged fields of a response: the addresses of the leaders it names, tag 0, or none (KIP-951)."""
    if not nodes:
        return b"\0"
    out = [uvarint(len(nodes) + 1)]
    for node_id, host, port, rack in nodes:
        out += (INT.pack(node_id), compact_string(host), INT.pack(port), compact_string(rack), b"\0")
    return b"\1" + tag_bytes(0, b"".join(out))


def read_node_endpoints(buf: memoryview) -> list[NodeEndpoint]:
    """What ``node_endpoints_tags`` wrote as the value of tag 0."""
    count, pos = read_count(buf, 0, True)
    found: list[NodeEndpoint] = []
    for _ in range(count):
        node_id: int = INT.unpack_from(buf, pos)[0]
        host, pos = read_string(buf, pos + 4, True)
        port: int = INT.unpack_from(buf, pos)[0]
        rack, pos = read_string(buf, pos + 4, True)
        pos = skip_tags(buf, pos)
        found.append((node_id, host or "", port, rack))
    return found
