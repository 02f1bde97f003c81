"""Profiles: which cluster commands ask, from a file of the user's.

Each table of ``~/.config/holdfast/config.toml`` (or of the file that HOLDFAST_CONFIG names) is a profile; ``default``
is the one of a command that names none. What an option or its variable says counts before the profile, and the profile
before what is built in.
"""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdfast.client.pool import parse_bootstrap
from holdfast.model.errors import ConfigError

FILE_VARIABLE: Final = "HOLDFAST_CONFIG"
PROFILE_VARIABLE: Final = "HOLDFAST_PROFILE"
DEFAULT_PROFILE: Final = "default"
BOOTSTRAP_KEY: Final = "bootstrap-server"
TIMEOUT_KEY: Final = "request-timeout"
CONFIG_KEY: Final = "command-config"


class ProfileError(Exception):
    """A file or a profile that cannot be used: which file, what in it, and what was expected."""


class Profile(NamedTuple):
    """What one says; None: nothing."""

    bootstrap: str | None = None
    request_timeout_s: float | None = None
    command_config: str | None = None


def config_path(environ: Mapping[str, str]) -> tuple[Path, bool]:
    """The file, and whether the user named it: then it has to be there. Pure."""
    named = environ.get(FILE_VARIABLE)
    if named:
        return Path(named), True
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config")
    return Path(home) / "holdfast" / "config.toml", False


def load_profile(name: str | None, environ: Mapping[str, str]) -> Profile:
    """``name``: the profile that was asked for; None: the default one, which need not exist. ProfileError."""
    path, must_be = config_path(environ)
    try:
        content = path.read_bytes().decode()
    except FileNotFoundError as e:
        if must_be or name is not None:
            what = "the file that HOLDFAST_CONFIG names" if must_be else f"the file with the profile '{name}'"
            raise ProfileError(f"{path}: {e.strerror}: expected {what}") from e
        return Profile()
    except OSError as e:
        raise ProfileError(f"{path}: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise ProfileError(f"{path} is no text: {e}") from e
    profiles = parse_profiles(content, str(path))
    if name is None:
        return profiles.get(DEFAULT_PROFILE, Profile())
    if name not in profiles:
        there = f"one of {', '.join(profiles)}" if profiles else f"[{name}] in it"
        raise ProfileError(f"{path}: there is no profile '{name}': expected {there}")
    return profiles[name]


def parse_profiles(content: str, path: str) -> dict[str, Profile]:
    """All of a file, whose ``path`` is told in errors. ProfileError. Pure."""
    try:
        tables = tomllib.loads(content)
    except tomllib.TOMLDecodeError as e:
        raise ProfileError(f'{path}: {e}: expected TOML, as [default] and {BOOTSTRAP_KEY} = "host:9092"') from e
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ProfileError(f"{path}: {name} is in no profile: expected [{DEFAULT_PROFILE}] or another one above it")
    return {name: _profile(table, f"{path}: [{name}]") for name, table in tables.items()}


def _profile(table: Mapping[str, Any], where: str) -> Profile:
    said: dict[str, Any] = {}
    for key, value in table.items():
        if key not in KEYS:
            near = get_close_matches(key, KEYS, n=1)
            raise ProfileError(f"{where} {key}: expected {f'{near[0]}?' if near else 'one of ' + ', '.join(KEYS)}")
        field, read = KEYS[key]
        try:
            said[field] = read(value)
        except ValueError as e:
            raise ProfileError(f"{where} {key} = {value!r}: {e}") from e
    return Profile(**said)


def _addresses(value: Any) -> str:
    parts = value if isinstance(value, list) else [value]
    if not parts or not all(isinstance(part, str) for part in parts):
        raise ValueError('expected "HOST:PORT,..." or a list of them')
    text = ",".join(parts)
    try:
        parse_bootstrap(text)
    except ConfigError as e:
        raise ValueError(str(e)) from e
    return text


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError("expected a number of seconds above 0")
    return float(value)


def _path(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError('expected "FILE", the properties of a Kafka client')
    return value


KEYS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    BOOTSTRAP_KEY: ("bootstrap", _addresses),
    TIMEOUT_KEY: ("request_timeout_s", _seconds),
    CONFIG_KEY: ("command_config", _path),
}
"""Key of a profile -> the field that it is, and how its value is read; ValueError says what was expected."""
