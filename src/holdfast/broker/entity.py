"""Kio entities of any version from plain dictionaries.

Kio has one class per API version. A handler describes its answer once, as nested dictionaries with the fields of
the newest version; ``build`` keeps what the version at hand has and fills what was not said with its emptiest
value. Not for hot paths: Produce and Fetch have codecs of their own.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import types
import typing
from collections.abc import Hashable, Mapping
from typing import Any, cast
from uuid import UUID

from kio.schema.errors import ErrorCode

from holdfast.model.errors import HoldfastError
from holdfast.protocol.error_codes import code_of


def error_code(error: HoldfastError | type[HoldfastError] | None) -> ErrorCode:
    """The wire code of an error; None is NONE."""
    return ErrorCode.none if error is None else ErrorCode(code_of(error))


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    name: str
    nested: type | None
    many: bool
    timedelta: bool
    zero: Any
    required: bool


def build(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """An entity of ``kind``. Unknown keys are left out; numbers for durations are milliseconds."""
    fields = {}
    for field in _plan(cast("Hashable", kind)):
        if field.name not in values:
            if field.required:
                fields[field.name] = field.zero
            continue
        value = values[field.name]
        if value is None:
            value = field.zero if field.zero is ErrorCode.none else None
        elif field.nested is not None:
            value = tuple(build(field.nested, v) for v in value) if field.many else build(field.nested, value)
        elif field.many:
            value = tuple(value)
        elif field.timedelta and not isinstance(value, datetime.timedelta):
            value = datetime.timedelta(milliseconds=value)
        elif isinstance(value, HoldfastError):
            value = error_code(value)
        fields[field.name] = value
    return kind(**fields)


@dataclasses.dataclass(frozen=True, slots=True)
class Unbuilt:
    """An entity that is described and not made yet: of a large answer that is done beside the loop."""

    kind: type[Any]
    values: Mapping[str, Any]

    @property
    def error_code(self) -> ErrorCode:
        """Of the whole answer."""
        return error_code(self.values.get("error_code"))


def built(response: Any) -> Any:
    """The entity, made now if it was not."""
    return build(response.kind, response.values) if isinstance(response, Unbuilt) else response


@functools.cache
def _plan(kind: Hashable) -> tuple[_Field, ...]:
    assert isinstance(kind, type) and dataclasses.is_dataclass(kind)
    hints = typing.get_type_hints(kind)
    plan = []
    for field in dataclasses.fields(kind):
        hint, optional = _strip_optional(hints[field.name])
        many = typing.get_origin(hint) is tuple
        inner = typing.get_args(hint)[0] if many else hint
        nested = inner if dataclasses.is_dataclass(inner) else None
        plan.append(
            _Field(
                name=field.name,
                nested=nested if isinstance(nested, type) else None,
                many=many,
                timedelta="Timedelta" in getattr(inner, "__name__", ""),
                zero=None if optional else () if many else _zero(inner),
                required=field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
            )
        )
    return tuple(plan)


def _strip_optional(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        members = [a for a in typing.get_args(hint) if a is not type(None)]
        return members[0], len(members) < len(typing.get_args(hint))
    return hint, False


def _zero(hint: Any) -> Any:
    if hint is ErrorCode:
        return ErrorCode.none
    if "Timedelta" in getattr(hint, "__name__", ""):
        return datetime.timedelta(0)
    if isinstance(hint, type):
        if issubclass(hint, UUID):
            return UUID(int=0)
        for base, zero in ((bool, False), (int, 0), (float, 0.0), (str, ""), (bytes, b"")):
            if issubclass(hint, base):
                return zero
        if dataclasses.is_dataclass(hint):
            return build(hint, {})
    return None
