"""What corpora are made of: recordings of tests/golden, and small messages of every class filled by their fields."""

import datetime
import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, Final, NamedTuple, get_args, get_origin
from uuid import UUID

GOLDEN: Final = Path(__file__).parents[1] / "golden"
DISK: Final = GOLDEN / "disk/4.3.0"
WIRE: Final = GOLDEN / "wire/4.3.0"


def acl() -> Any:
    """An access control entry."""
    from holdfast.security.acls import AclBinding, AclEntry, ResourcePattern
    from holdfast.security.resources import Operation, Permission, ResourceKind

    entry = AclEntry("User:a", "*", Operation.READ, Permission.ALLOW)
    return AclBinding(ResourcePattern(ResourceKind.TOPIC, "t"), entry)


def users() -> list[Any]:
    """Records of a user, what salts are made of, and quotas."""
    from holdfast.metadata import records as m
    from holdfast.security.scram_credential import ScramCredential

    credential = ScramCredential(b"salt", b"stored", b"server", 4096)
    with_client = (("user", "u"), ("client-id", "c"))
    return [
        m.ScramSecretRecord(secret=b"s" * 32),
        m.UserScramCredentialRecord(name="u", mechanism=m.ScramMechanism.SCRAM_SHA_512, credential=credential),
        m.ClientQuotaRecord(entity=with_client, key="producer_byte_rate", value=1024.0),
        m.ClientQuotaRecord(entity=with_client, key="request_percentage", value=0.5),
    ]


class Recorded(NamedTuple):
    """A request (with its header) and perhaps its answer, both without their sizes."""

    api_key: int
    version: int
    request: bytes
    response: bytes | None


@cache
def recorded_messages() -> tuple[Recorded, ...]:
    """Everything that was recorded on the wire."""
    found = []
    for path in sorted(WIRE.glob("*.json")):
        for case in json.loads(path.read_text()):
            if "request_hex" in case and "api_key" in case:
                answer = case.get("response_hex")
                found.append(
                    Recorded(
                        case["api_key"],
                        case["version"],
                        bytes.fromhex(case["request_hex"]),
                        bytes.fromhex(answer) if answer else None,
                    )
                )
    return tuple(found)


@cache
def recorded_files(name: str) -> dict[str, bytes]:
    """File name -> contents of a recorded directory, as a clean shutdown left it."""
    found = json.loads((DISK / f"{name}.json").read_text()).get("files_after_clean_shutdown", {})
    return {
        path.split("/")[-1]: bytes.fromhex(f["hex"]) if "hex" in f else f["text"].encode()
        for path, f in found.items()
        if "hex" in f or "text" in f
    }


@cache
def recorded_directories() -> tuple[str, ...]:
    """Names of the recordings that are logs."""
    skipped = ("directory_names", "log_dir_files_after_clean_shutdown", "log_dir_files_while_running")
    return tuple(path.stem for path in sorted(DISK.glob("*.json")) if path.stem not in skipped)


def recorded_segments() -> Iterator[bytes]:
    """The segment files of all recordings."""
    for name in recorded_directories():
        for file, data in recorded_files(name).items():
            if file.endswith(".log") and data:
                yield data


def recorded_batches() -> list[bytes]:
    """Every different batch of the recordings that is not large."""
    from holdfast.records.batch import split

    found = {bytes(batch) for data in recorded_segments() for batch in split(data)}
    return sorted((batch for batch in found if len(batch) <= 700), key=lambda batch: (len(batch), batch))


# -- messages ------------------------------------------------------------------------------------------------

_NUMBERS: Final = {
    "int8": (0, 1, -1),
    "int16": (1, 0, -1),
    "uint16": (9092, 0, 65535),
    "int32": (1, 0, -1),
    "uint32": (1, 0, 2**32 - 1),
    "int64": (100, 0, -1),
    "uint64": (1, 0, 2),
    "float64": (1.0, 0.0, -1.0),
}
_TEXTS: Final = ("t1", "", "name-of-something.long")
_BLOBS: Final = (b"\0\0\0\0\0\1", b"", b"\0\1\0\0\0\1\0\2t1\xff\xff\xff\xff")
_EPOCH: Final = datetime.datetime(2023, 11, 14, tzinfo=datetime.UTC)


def message(kind: Any, variant: int = 0) -> Any:
    """An instance of a message class: arrays of ``2 - variant`` elements, nulls where they may be in variant 1."""
    values = {}
    for field in fields(kind):
        values[field.name] = _value(field.type, field.metadata.get("kafka_type"), variant)
    return kind(**values)


def _value(kind: Any, kafka_type: str | None, variant: int) -> Any:
    members = [member for member in get_args(kind) if member is not NoneType]
    if get_origin(kind) is tuple:
        element = get_args(kind)[0]
        return tuple(_value(element, kafka_type, (variant + i) % 3) for i in range((2, 1, 0)[variant]))
    if NoneType in get_args(kind):
        if variant == 1:
            return None
        kind = members[0]
        if get_origin(kind) is tuple:
            return _value(kind, kafka_type, variant)
    if is_dataclass(kind):
        return message(kind, variant)
    return _primitive(kafka_type or "int32", variant)


def _primitive(kafka_type: str, variant: int) -> Any:
    if kafka_type in _NUMBERS:
        return _NUMBERS[kafka_type][variant]
    match kafka_type:
        case "bool":
            return variant == 0
        case "string":
            return _TEXTS[variant]
        case "bytes":
            return _BLOBS[variant]
        case "records":
            from kio.static.primitive import Records

            return Records(b"" if variant else recorded_batches()[0])
        case "uuid":
            return UUID(int=variant + 1)
        case "error_code":
            from kio.schema.errors import ErrorCode

            return (ErrorCode.none, ErrorCode.not_leader_or_follower, ErrorCode.unknown_server_error)[variant]
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=(5000, 0, 1)[variant])
        case "datetime_i64":
            return _EPOCH
    raise AssertionError(f"no sample for fields of type {kafka_type}")


def spoken(*tables: Any) -> list[tuple[int, int]]:
    """(API, version) of everything in the tables of protocol/apis.py."""
    return [(int(key), v) for table in tables for key, span in table.items() for v in range(span.min, span.max + 1)]


def requests(table: list[tuple[int, int]]) -> list[tuple[int, bytes]]:
    """Of each (API, version) its place in ``table``, with bodies of requests: made up, and short ones of recordings."""
    from holdfast.protocol.apis import request_type
    from holdfast.protocol.framing import encode_body, parse_request_header

    found = []
    for i, (key, version) in enumerate(table):
        found += [(i, encode_body(message(request_type(key, version), variant))) for variant in range(3)]
        for recorded in recorded_messages():
            if (recorded.api_key, recorded.version) == (key, version) and len(recorded.request) < 250:
                found.append((i, recorded.request[parse_request_header(recorded.request).body_offset :]))
    return found
