"""Which log directories of this broker are cordoned: they serve what they have and take nothing new (KIP-1066).

Owns how ``cordoned.log.dirs`` becomes ``LogDir.cordoned`` and what the controller is told of it. The order makes that a
new topic is never sent to a broker that then has no place for it:

    to cordon:    checked here > told by heartbeat, recorded > the configuration is recorded > LogDir.cordoned
    to uncordon:  the configuration is recorded > LogDir.cordoned > told by heartbeat, recorded

Entries are compared as absolute, normalised paths (C28); so are those that are not log directories any more, which mean
nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from holdfast.model.config import ALL_DIRS, CORDONED_LOG_DIRS, absolute_path, cordoned_entries
from holdfast.model.errors import ConfigError, InvalidRequestError
from holdfast.model.log_events import LogEvent, told

if TYPE_CHECKING:
    from holdfast.broker.membership import Membership
    from holdfast.broker.metadata_cache import MetadataCache
    from holdfast.model.config import BrokerConfig
    from holdfast.model.types import BrokerId
    from holdfast.storage.log_manager import LogManager

log = logging.getLogger(__name__)

TELL_TIMEOUT_S = 5.0
"""How long a change waits for the controller to hear of it; there may be none."""


class FillsPlaces(Protocol):
    """Who makes the replicas that had no place."""

    def there_is_a_place(self) -> None: ...


class CordonsHost(Protocol):
    """What the cordons ask of the broker."""

    broker_id: BrokerId
    config: BrokerConfig
    logs: LogManager
    metadata: MetadataCache
    membership: Membership

    @property
    def told_epoch(self) -> int: ...

    @property
    def disks(self) -> FillsPlaces: ...


class Cordons:
    """See the module's docstring. Everything on the loop."""

    def __init__(self, broker: CordonsHost) -> None:
        self._broker = broker
        self._coming: frozenset[str] = frozenset()
        """Paths that are about to be cordoned: the controller knows first."""
        self._changes = asyncio.Lock()

    # -- what is in force --------------------------------------------------------------------------------------

    def holds(self, path: str) -> bool:
        """Whether the configuration has this directory cordoned."""
        return self._broker.config.is_cordoned(path)

    def apply(self) -> None:
        """The configuration has changed: have it on the directories. What was refused for want of a place is made up
        for where there is one again."""
        broker, is_less, is_news = self._broker, False, False
        for directory in broker.logs.dirs:
            cordoned = self.holds(directory.path)
            if cordoned is not directory.cordoned:
                directory.cordoned = cordoned
                is_news, is_less = True, is_less or not cordoned
                event = LogEvent.DIR_CORDONED if cordoned else LogEvent.DIR_UNCORDONED
                words = "cordoned" if cordoned else "not cordoned any more"
                log.info("log dir %s is %s", directory.path, words, extra=told(event, dir=directory.path))
        if not is_news:
            return
        foreign = self._foreign(broker.config.list(CORDONED_LOG_DIRS))
        if foreign:
            log.warning("%s names what is no log directory here: %s", CORDONED_LOG_DIRS, ", ".join(foreign))
        if is_less:
            broker.disks.there_is_a_place()
        broker.membership.beat()

    def all(self) -> tuple[UUID, ...]:
        """Ids of all directories that have one."""
        return tuple(d.directory_id for d in self._broker.logs.dirs if d.directory_id is not None)

    def cordoned(self) -> tuple[UUID, ...] | None:
        """What a heartbeat tells; None before it is known what was set at run time (K1066-11)."""
        return None if self._broker.told_epoch < 0 else self.known_cordoned()

    def known_cordoned(self) -> tuple[UUID, ...]:
        """As far as it is known here: by the properties file until the controller has told more."""
        return tuple(
            d.directory_id
            for d in self._broker.logs.dirs
            if d.directory_id is not None and (d.cordoned or absolute_path(d.path) in self._coming)
        )

    # -- what is asked for -------------------------------------------------------------------------------------

    def _paths(self) -> set[str]:
        """Those that may be named: what is used, and what the properties file has."""
        return {absolute_path(p) for p in (*(d.path for d in self._broker.logs.dirs), *self._broker.config.log_dirs)}

    def _foreign(self, entries: Iterable[str]) -> list[str]:
        paths = self._paths()
        return [entry for entry in entries if entry != ALL_DIRS and absolute_path(entry) not in paths]

    def check(self, value: str) -> None:
        """InvalidRequestError, in Kafka's words, for a value that this broker cannot have (K1066-02)."""
        entries = cordoned_entries(value)
        if ALL_DIRS in entries and len(entries) > 1:
            raise InvalidRequestError(
                f"requirement failed: When {CORDONED_LOG_DIRS} is set to *, it must not contain other values"
            )
        foreign = self._foreign(entries)
        if foreign:
            raise InvalidRequestError(
                f"requirement failed: All entries in {CORDONED_LOG_DIRS} must be present in log.dirs or log.dir. "
                f"Missing entries : {', '.join(foreign)}"
            )

    def check_elsewhere(self, broker_id: int, value: str) -> None:
        """ConfigError for a value of another broker that may cordon something: its directories are known
        to itself alone. To take a cordon off is good for a broker that is down, too (Kafka: only at a controller)."""
        entries = cordoned_entries(value)
        present = cordoned_entries(self._broker.metadata.broker_configs.get(broker_id, {}).get(CORDONED_LOG_DIRS, ""))
        if ALL_DIRS in present or set(map(absolute_path, entries)) <= set(map(absolute_path, present)):
            return
        raise ConfigError(
            f"{CORDONED_LOG_DIRS} of broker {broker_id} can only be reduced at broker {self._broker.broker_id}: "
            f"expected a subset of {','.join(present)!r}, or the request at broker {broker_id} itself"
        )

    @contextlib.asynccontextmanager
    async def changing(self, value: str) -> AsyncIterator[None]:
        """Around a change to ``value``: the controller hears of what is to be cordoned before it is, and afterwards,
        whether the change was made or refused, how it is then. One at a time."""
        entries = cordoned_entries(value)
        async with self._changes:
            self._coming = frozenset(self._paths() if ALL_DIRS in entries else map(absolute_path, entries))
            try:
                await self._tell()
                yield
            finally:
                self._coming = frozenset()
        await self._tell()

    async def _tell(self) -> None:
        try:
            async with asyncio.timeout(TELL_TIMEOUT_S):
                await self._broker.membership.tell()
        except TimeoutError:
            log.warning("the controller has not heard of cordoned log dirs within %.0f s", TELL_TIMEOUT_S)
