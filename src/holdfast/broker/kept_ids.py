"""Which host has which broker id, asked from the loop, where the store keeps that apart from the records.

Owns a thread for it, made when it is needed first: that a store does not answer holds up nobody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from holdfast.broker.reigns import in_thread
from holdfast.controller.broker_ids import unknown_host
from holdfast.model.errors import ConfigError, InvalidRequestError

if TYPE_CHECKING:
    from holdfast.broker.platform import WorkThread
    from holdfast.metadata.broker_ids import HostEntry, OwnMapping
    from holdfast.model.types import BrokerId


class KeptIdsHost(Protocol):
    """The broker, which ends its threads."""

    def thread(self, name: str) -> WorkThread: ...


class KeptIds:
    """See the module's docstring."""

    def __init__(self, broker: KeptIdsHost, mapping: OwnMapping) -> None:
        self._broker = broker
        self._mapping = mapping
        self._thread: WorkThread | None = None

    async def manage(self, host: str | None, broker_id: BrokerId | None) -> tuple[Mapping[str, HostEntry], int]:
        """Have the host have this id, or none; nothing changes without a host. What is kept then, and the number of the
        last new id. InvalidRequestError, ResourceNotFoundError; KafkaStorageError when the store does not answer."""
        if self._thread is None:
            self._thread = self._broker.thread("host-ids")
        found: tuple[Mapping[str, HostEntry], int] = await in_thread(
            self._thread, partial(self._manage, host, broker_id)
        )
        return found

    def _manage(self, host: str | None, broker_id: BrokerId | None) -> tuple[Mapping[str, HostEntry], int]:
        mapping = self._mapping
        try:
            if host is not None and broker_id is not None:
                mapping.put(host, broker_id)
            elif host is not None and not mapping.forget(host):
                raise unknown_host(host, mapping.hosts())
        except ConfigError as e:
            raise InvalidRequestError(str(e)) from e
        return mapping.hosts(), mapping.sequence()
