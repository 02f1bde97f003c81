"""Options of the data source that say what keys and values are: ``value.format`` and those beside it.

Owns parsing and the words of what is wrong. Reads the files that options name, on the driver; asks no registry.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from holdfast.spark.option_names import FORMAT_OPTIONS
from holdfast.spark.options import OptionError
from holdfast.spark.value_formats import FormatName, RegistrySettings

BadRecords: TypeAlias = Literal["fail", "null", "skip"]
INFER: Final = "infer"
"""As ``value.schema`` of JSON."""
FORMATS: Final[tuple[FormatName, ...]] = ("json", "struct", "avro", "protobuf")
_REGISTRY: Final = tuple(name for name in FORMAT_OPTIONS if name.startswith("schema.registry."))
_OF: Final = {
    "json": ("schema", "schema.file", "time.zone"),
    "struct": ("schema", "schema.file"),
    "avro": ("schema", "schema.file", "schema.subject", *_REGISTRY),
    "protobuf": ("schema.file", "message", "schema.subject", *_REGISTRY),
    "raw": (),
}
"""Options of a format, beside the format itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatOptions:
    """What a reader was told of keys, or of values."""

    of: Literal["key", "value"]
    name: FormatName
    schema: str | None = None
    """Text."""
    descriptors: bytes | None = None
    """The file of Protobuf."""
    message: str | None = None
    subject: str | None = None
    registry: RegistrySettings | None = None
    time_zone: str = "UTC"

    @property
    def inferred(self) -> bool:
        return self.name == "json" and self.schema == INFER


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedOptions:
    """None for what stays bytes."""

    value: FormatOptions | None
    key: FormatOptions | None
    value_is_struct: bool
    """The value's fields are in one column ``value``, not columns themselves."""
    bad: BadRecords


def parse_typed(given: Mapping[str, str], *, streaming: bool) -> TypedOptions | None:
    """None if keys and values are raw. OptionError names what is wrong."""
    options = {name.lower(): value.strip() for name, value in given.items()}
    value, key = _format(options, "value"), _format(options, "key")
    for each in (value, key):
        if streaming and each is not None and each.inferred:
            raise OptionError(
                f"option {each.of}.schema={INFER!r} is not for a stream, whose columns have to be the same after a "
                "restart: name them, as those that a batch read infers"
            )
    bad = options.get("badrecords")
    if bad is not None and bad not in ("fail", "null", "skip"):
        raise OptionError(f"option badRecords={bad!r}: expected fail, null or skip")
    shape = options.get("value.as")
    if shape is not None and shape not in ("columns", "struct"):
        raise OptionError(f"option value.as={shape!r}: expected columns or struct")
    if shape is not None and value is None:
        raise OptionError(f"option value.as={shape!r} needs a value.format: a raw value is one column")
    if value is None and key is None:
        if bad is not None:
            raise OptionError(
                f"option badRecords={bad!r} needs a value.format or a key.format: raw bytes are never bad"
            )
        return None
    words: dict[str | None, BadRecords] = {"null": "null", "skip": "skip"}
    return TypedOptions(value=value, key=key, value_is_struct=shape == "struct", bad=words.get(bad, "fail"))


def _format(options: Mapping[str, str], of: Literal["key", "value"]) -> FormatOptions | None:
    word = options.get(f"{of}.format", "raw").lower()
    if word not in _OF:
        raise OptionError(f"option {of}.format={word!r}: expected raw, {', '.join(FORMATS)}")
    there = {name: options[f"{of}.{name}"] for name in FORMAT_OPTIONS if f"{of}.{name}" in options}
    there.pop("format", None)
    for option, text in there.items():
        if option not in _OF[word]:
            formats = " and ".join(each for each, options_of in _OF.items() if option in options_of)
            raise OptionError(f"option {of}.{option} is of {formats}: {of}.format is {word}")
        if not text:
            raise OptionError(f"option {of}.{option} is empty")
    name = next((each for each in FORMATS if each == word), None)
    if name is None:
        return None
    if "schema" in there and "schema.file" in there:
        raise OptionError(f"options {of}.schema and {of}.schema.file are both given: expected one of them")
    if "schema.subject" in there and "schema.registry.url" not in there:
        raise OptionError(f"option {of}.schema.subject needs {of}.schema.registry.url")
    content = _content(f"{of}.schema.file", there["schema.file"]) if "schema.file" in there else None
    found = FormatOptions(
        of=of,
        name=name,
        schema=there.get("schema") if content is None or name == "protobuf" else _text(of, there, content),
        descriptors=content if name == "protobuf" else None,
        message=there.get("message"),
        subject=there.get("schema.subject"),
        registry=_registry(of, there),
        time_zone=_time_zone(of, there.get("time.zone", "UTC")),
    )
    _check_enough(found)
    return found


def _check_enough(found: FormatOptions) -> None:
    of, name = found.of, found.name
    told = found.schema if name != "protobuf" else found.descriptors
    if told is not None and found.subject is not None:
        raise OptionError(f"option {of}.schema.subject: {of}.schema or its file already says what is read")
    if name == "struct" and told is None:
        raise OptionError(f"option {of}.schema is missing: expected the layout, as 'id:>i8, price:>f8'")
    if name in ("avro", "protobuf") and told is None and found.registry is None:
        what = f"{of}.schema or {of}.schema.file" if name == "avro" else f"{of}.schema.file, a descriptor set,"
        raise OptionError(
            f"option {what} is missing, or {of}.schema.registry.url: what {name} is, its bytes do not say"
        )
    if name == "protobuf" and found.message is None:
        raise OptionError(f"option {of}.message is missing: expected the full name of a message, as shop.Order")


def _time_zone(of: str, name: str) -> str:
    if name != "UTC":
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            pc.assume_timezone(pa.array([0], pa.timestamp("us")), name)
        except pa.ArrowInvalid as error:
            raise OptionError(f"option {of}.time.zone={name!r}: {error}") from None
    return name


def _content(option: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise OptionError(
            f"option {option}={path!r}: {error.strerror or error} (it is read where the driver runs)"
        ) from None


def _text(of: str, there: Mapping[str, str], content: bytes) -> str:
    try:
        return content.decode().strip()
    except UnicodeDecodeError as error:
        raise OptionError(f"option {of}.schema.file={there['schema.file']!r} is no text: {error}") from None


def _registry(of: str, there: Mapping[str, str]) -> RegistrySettings | None:
    start = "schema.registry."
    given = {name[len(start) :]: text for name, text in there.items() if name.startswith(start)}
    if not given:
        return None
    if "url" not in given:
        raise OptionError(f"option {of}.{start}{next(iter(given))} needs {of}.{start}url")
    if ("user" in given) != ("password" in given):
        raise OptionError(f"options {of}.{start}user and {of}.{start}password: expected both or none")
    if "user" in given and "token" in given:
        raise OptionError(f"options {of}.{start}user and {of}.{start}token: expected one of them")
    found = RegistrySettings(
        urls=given["url"],
        user=given.get("user", ""),
        password=given.get("password", ""),
        token=given.get("token", ""),
        ca=given.get("ca", ""),
    )
    try:
        found.client()
    except ValueError as error:
        raise OptionError(f"option {of}.{start}url: {error}") from None
    return found
