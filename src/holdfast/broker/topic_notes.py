"""Keeps the configurations of topics in every log directory (storage/topic_configs.py), for the day on which every copy
of the metadata is gone.

Owns when that is written: soon after they changed, and again where it could not be. Each write is on the thread of its
directory.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from holdfast.model.errors import HoldfastError
from holdfast.storage import topic_configs
from holdfast.storage.topic_configs import TopicConfigs

if TYPE_CHECKING:
    import asyncio

    from holdfast.broker.metadata_cache import MetadataCache
    from holdfast.storage.log_dir import LogDir
    from holdfast.storage.log_manager import LogManager

SOON_S = 0.2


class NotesHost(Protocol):
    """What the notes are of."""

    loop: asyncio.AbstractEventLoop
    logs: LogManager
    metadata: MetadataCache

    @property
    def told(self) -> tuple[int, int]: ...


class TopicNotes:
    """On the loop."""

    def __init__(self, broker: NotesHost) -> None:
        self._broker = broker
        self._written: dict[LogDir, object] = {}
        """What each directory has, as it was found in the metadata; and what is being written."""
        self._timer: asyncio.TimerHandle | None = None

    def changed(self) -> None:
        """The metadata is new: perhaps configurations are."""
        if self._timer is None:
            self._timer = self._broker.loop.call_later(SOON_S, self.write)

    def write(self) -> None:
        """Bring it up to date where it is not."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        broker, metadata = self._broker, self._broker.metadata
        if not metadata.updates:
            return
        wanted = {topic: dict(found) for topic, found in metadata.topic_configs.items() if found}
        dirs = [d for d in broker.logs.dirs if d.is_online]
        self._written = {d: was for d, was in self._written.items() if d in dirs}
        stale = [d for d in dirs if self._written.get(d) != wanted]
        configs = TopicConfigs(told=broker.told, topics=wanted) if stale else None
        for directory in stale:
            assert configs is not None
            self._written[directory] = wanted
            directory.queue.submit(partial(self._write_to, directory, configs), partial(self._done, directory))

    @staticmethod
    def _write_to(directory: LogDir, configs: TopicConfigs) -> None:
        if directory.is_online:
            with directory.guard():
                directory.refuse_beneath()
                topic_configs.write(directory.files, directory.path, configs)

    def _done(self, directory: LogDir, _: None, error: HoldfastError | None) -> None:
        if error is not None:
            self._written.pop(directory, None)

    def close(self) -> None:
        """Write no more."""
        if self._timer is not None:
            self._timer.cancel()
