"""``--command-config FILE``: a properties file of Kafka's Java clients, for commands that connect to brokers.

Taken are ``security.protocol``, ``ssl.*``, ``sasl.*`` and ``bootstrap.servers``; other settings of such files are for
other clients. Owns the reading, and the words where a listener wants what nobody has said.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from holdfast.client.pool import parse_bootstrap
from holdfast.client.sasl_options import JAAS, MECHANISM, MODULES
from holdfast.client.security_options import SECURITY_PREFIXES, parse_security
from holdfast.model.errors import ConfigError
from holdfast.model.properties import read_properties

if TYPE_CHECKING:
    from holdfast.client.security import SecuritySettings

OPTION: Final = "--command-config"
VARIABLE: Final = "HOLDFAST_COMMAND_CONFIG"
CHOSEN: Final = "holdfast.command_config"
"""Of a click context's ``meta``."""
BOOTSTRAP: Final = "bootstrap.servers"
_ASKED_FOR: Final = "expected security.protocol="
"""In what the client says of a listener that wants more than it was given (client/)."""


@dataclass(frozen=True, slots=True)
class CommandConfig:
    """What a file says; ``settings`` hold secrets."""

    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    security: SecuritySettings | None = None
    has_user: bool = True
    """False: users say later who they are; the user in ``security`` is nobody's."""

    @property
    def bootstrap(self) -> str | None:
        return self.settings.get(BOOTSTRAP) or None

    def spark_options(self) -> dict[str, str]:
        """The same for a source or sink of ``format("holdfast")``."""
        given = ((name, text) for name, text in self.settings.items() if name.startswith(SECURITY_PREFIXES))
        return {f"kafka.{name}": text for name, text in given}


def read_command_config(path: str, *, may_lack_user: bool = False) -> CommandConfig:
    """ConfigError names the file and what is wrong in it, and no secret. ``may_lack_user``: sasl.jaas.config need not
    be there for a mechanism with user and password."""
    try:
        settings = read_properties(Path(os.path.expanduser(path)).read_bytes().decode())
    except OSError as e:
        raise ConfigError(f"{path}: {e.strerror}: expected a properties file of a Kafka client") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is no text: expected a properties file of a Kafka client") from None
    try:
        module = MODULES.get(settings.get(MECHANISM, "").strip().upper(), "")
        has_user = not may_lack_user or JAAS in settings or module not in ("PlainLoginModule", "ScramLoginModule")
        nobody = {} if has_user else {JAAS: f'{module} required username="nobody" password="nobody";'}
        found = CommandConfig(settings, parse_security(settings | nobody, ""), has_user)
        if found.bootstrap is not None:
            parse_bootstrap(found.bootstrap)
    except ConfigError as e:
        raise ConfigError(f"{path}: {e}") from None
    return found


def command_config() -> CommandConfig:
    """Of the command that runs."""
    ctx = click.get_current_context(silent=True)
    found: CommandConfig | None = None if ctx is None else ctx.meta.get(CHOSEN)
    return found or CommandConfig()


def command_security() -> SecuritySettings | None:
    """How the command that runs speaks to brokers; None: in plaintext."""
    return command_config().security


def with_way_out(text: str) -> str:
    """What a client says, and where it is said here what it expects."""
    if _ASKED_FOR not in text:
        return text
    ctx = click.get_current_context(silent=True)
    given = ctx is not None and ctx.meta.get(CHOSEN) is not None
    return f"{text}, in {'the file of ' if given else ''}{OPTION}{'' if given else ' FILE'}"
