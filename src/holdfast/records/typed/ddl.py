"""Schemas in the words of Spark's DDL to Arrow, without a JVM: ``id BIGINT, at TIMESTAMP, tags ARRAY<STRING>``.

Owns the grammar of what is taken: fields with or without a colon, names in backticks, ``NOT NULL`` (which changes
nothing: a field that is absent is null) and ``COMMENT '...'``. A test compares it with Spark's own parser.
"""

import re
from typing import Final

import pyarrow as pa

from holdfast.records.typed.schema_error import SchemaError

_TOKEN: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"|(\w+)|([<>(),:]))")
_TYPES: Final = {
    "boolean": pa.bool_(), "tinyint": pa.int8(), "byte": pa.int8(), "smallint": pa.int16(), "short": pa.int16(),
    "int": pa.int32(), "integer": pa.int32(), "bigint": pa.int64(), "long": pa.int64(),
    "float": pa.float32(), "real": pa.float32(), "double": pa.float64(), "string": pa.string(), "binary": pa.binary(),
    "date": pa.date32(), "timestamp": pa.timestamp("us", tz="UTC"), "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
_DECIMALS: Final = ("decimal", "dec", "numeric")
MAX_DEPTH: Final = 50


def parse_ddl(text: str) -> pa.Schema:
    """The fields of a schema. SchemaError says where it is wrong, and what was expected."""
    reader = _Ddl(text)
    fields = reader.fields("", 0)
    if reader.kind:
        raise reader.wrong("a comma or the end")
    return pa.schema(fields)


class _Ddl:
    """Reads token after token. ``kind`` of the one at hand: name (in backticks), text (in quotes), word, sign, or
    empty at the end."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._next = text, 0, 0
        self.kind, self.token = "", ""
        self._step()

    def wrong(self, expected: str) -> SchemaError:
        found = repr(self._text[self._at : self._at + 20].strip()) if self.kind else "the end"
        return SchemaError(f"schema {self._text!r}: at position {self._at} expected {expected}, found {found}")

    def fields(self, closing: str, depth: int) -> list[pa.Field]:
        """Up to ``closing``, which is not taken."""
        if depth > MAX_DEPTH:
            raise SchemaError(f"the schema is nested deeper than {MAX_DEPTH}")
        found: list[pa.Field] = []
        while True:
            if self.kind not in ("name", "word"):
                raise self.wrong("the name of a field")
            name = self.token
            self._step()
            self._taken(":")
            if any(each.name == name for each in found):
                raise SchemaError(f"schema {self._text!r}: field {name!r} is there twice")
            found.append(pa.field(name, self._type(depth)))
            self._ending()
            if not self._taken(","):
                return found

    def _type(self, depth: int) -> pa.DataType:
        word = self.token.lower() if self.kind == "word" else ""
        if word in _DECIMALS:
            self._step()
            return self._decimal()
        if word in ("array", "map", "struct"):
            self._step()
            return self._nested(word, depth + 1)
        if word not in _TYPES:
            raise self.wrong(f"a type, one of {', '.join(_TYPES)}, decimal(p,s), array<>, map<,>, struct<>")
        self._step()
        return _TYPES[word]

    def _decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        if self._taken("("):
            precision = self._number()
            scale = self._number() if self._taken(",") else 0
            self._need(")")
        if not (0 < precision <= 38 and scale <= precision):
            raise self.wrong(f"a decimal of 1 to 38 digits, not decimal({precision},{scale}), before this")
        return pa.decimal128(precision, scale)

    def _nested(self, word: str, depth: int) -> pa.DataType:
        if depth > MAX_DEPTH:
            raise SchemaError(f"the schema is nested deeper than {MAX_DEPTH}")
        self._need("<")
        kind: pa.DataType
        if word == "array":
            kind = pa.list_(pa.field("element", self._type(depth)))
        elif word == "map":
            key = self._type(depth)
            self._need(",")
            kind = pa.map_(key, self._type(depth))
        else:
            kind = pa.struct(self.fields(">", depth))
        self._need(">")
        return kind

    def _ending(self) -> None:
        if self.kind == "word" and self.token.lower() == "not":
            self._step()
            if self.kind != "word" or self.token.lower() != "null":
                raise self.wrong("NULL")
            self._step()
        if self.kind == "word" and self.token.lower() == "comment":
            self._step()
            if self.kind != "text":
                raise self.wrong("a comment in quotes")
            self._step()

    def _number(self) -> int:
        if self.kind != "word" or not self.token.isdecimal():
            raise self.wrong("a number")
        found = int(self.token[:4])
        self._step()
        return found

    def _taken(self, sign: str) -> bool:
        found = self.kind == "sign" and self.token == sign
        if found:
            self._step()
        return found

    def _need(self, sign: str) -> None:
        if not self._taken(sign):
            raise self.wrong(repr(sign))

    def _step(self) -> None:
        self._at = self._next
        rest = self._text[self._at :]
        self._at += len(rest) - len(rest.lstrip())
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            self.kind, self.token = ("other" if self._text[self._at :] else ""), ""
            return
        self._next = match.end()
        name, one, two, word, sign = match.groups()
        if name is not None:
            self.kind, self.token = "name", name.replace("``", "`")
        elif one is not None or two is not None:
            self.kind, self.token = "text", one if one is not None else two
        else:
            self.kind, self.token = ("word", word) if word is not None else ("sign", sign)
