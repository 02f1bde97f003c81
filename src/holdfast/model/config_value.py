"""The text of a configuration value to its typed value, and what is said of one that cannot be, in Kafka's words."""

import re
from typing import Final, TypeAlias

from holdfast.model.config_key import ConfigKey, ConfigType
from holdfast.model.errors import ConfigError

Value: TypeAlias = bool | int | float | str | tuple[str, ...]

_INTEGER: Final = re.compile(r"[+-]?\d+")
_DOUBLE: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[dDfF]?", re.ASCII)
"""What Java reads as a number, but for NaN, infinity and hexadecimal ones."""
_INTEGER_BITS: Final = {ConfigType.SHORT: 15, ConfigType.INT: 31, ConfigType.LONG: 63}


def parse_value(key: ConfigKey, text: str) -> Value:
    """The value of ``text`` for ``key``; ConfigError says both and what was expected, in Kafka's words."""
    value = _parse(key, text.strip())
    if key.only_default and value != (_parse(key, key.default) if key.default else type(value)()):
        raise _bad(key, text, f"Value must be {key.default or 'empty'}, since {key.inert}")
    return value


def _parse(key: ConfigKey, text: str) -> Value:
    kind = key.type
    if kind in _INTEGER_BITS:
        bound = 1 << _INTEGER_BITS[kind]
        number = int(text) if _INTEGER.fullmatch(text) else bound
        if not -bound <= number < bound:
            raise _bad(key, text, f"Not a number of type {kind.value}")
        _in_form(key, text, str(number))
        return _in_range(key, number)
    if kind is ConfigType.DOUBLE:
        if _DOUBLE.fullmatch(text) is None:
            raise _bad(key, text, "Not a number of type DOUBLE")
        return _in_range(key, float(text.rstrip("dDfF")))
    if kind is ConfigType.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise _bad(key, text, "Expected value to be either true or false")
        return text.lower() == "true"
    if kind is ConfigType.LIST:
        return _parse_list(key, text)
    _in_form(key, text, text)
    _one_of(key, text)
    return text


def _parse_list(key: ConfigKey, text: str) -> Value:
    items = tuple(item.strip() for item in text.split(",")) if text else ()
    if key.choices and not all(items):
        raise ConfigError(f"Configuration '{key.name}' values must not be empty.")
    if key.form is not None and re.fullmatch(key.form.pattern, text) is None:
        raise _bad(key, f"[{', '.join(items)}]", f"{key.name} must be {key.form.words}")
    for item in items:
        _one_of(key, item)
    return tuple(dict.fromkeys(items)) if key.choices else items


def _in_form(key: ConfigKey, text: str, plain: str) -> None:
    if key.form is not None and re.fullmatch(key.form.pattern, plain) is None:
        raise _bad(key, text, f"Value must be {key.form.words}")


def _one_of(key: ConfigKey, item: str) -> None:
    if key.choices and item not in key.choices:
        raise _bad(key, item, f"String must be one of: {', '.join(key.choices)}")


def _in_range(key: ConfigKey, number: int | float) -> int | float:
    if key.low is not None and number < key.low:
        raise _bad(key, str(number), f"Value must be at least {_plain(key.low)}")
    if key.high is not None and number > key.high:
        raise _bad(key, str(number), f"Value must be no more than {_plain(key.high)}")
    return number


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def _bad(key: ConfigKey, text: str, expected: str) -> ConfigError:
    shown = "[hidden]" if key.sensitive else text
    return ConfigError(f"Invalid value {shown} for configuration {key.name}: {expected}")
