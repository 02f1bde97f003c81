"""What this broker knows of quotas: which limit counts for a user and a client, or for an address.

Owns what the controller told of them (UpdateMetadata's ``client_quotas``). Changed on the event loop only. Which of
eight levels counts is security/quotas.py's to say; ``version`` grows with each change, so that what was found may be
kept until then.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.metadata.codec_news import decode_news
from holdfast.metadata.records import ClientQuotaRecord
from holdfast.model.addresses import plain_address
from holdfast.model.errors import CorruptRecordError
from holdfast.protocol.interbroker import TYPE_FULL
from holdfast.security.quota_entities import (
    CONNECTION_CREATION_RATE,
    IP,
    EntityFilter,
    QuotaEntity,
    entity_order,
)

log = logging.getLogger(__name__)


class QuotaView:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.by_entity: dict[QuotaEntity, dict[str, float]] = {}
        """Quotas of each entity that has any; read only."""
        self._ip_rates: dict[str | None, int] = {}
        """By address as it is compared: the least, where entities spell one address differently; None: the default."""
        self.version = 0
        self.limits_clients = False
        """Whether any user or client has a quota: where it is False nothing need be measured."""

    def matching(self, wanted: EntityFilter) -> Iterator[tuple[QuotaEntity, dict[str, float]]]:
        """The entities that a filter finds, with their quotas."""
        for entity in sorted(self.by_entity, key=entity_order):
            if wanted.matches(entity):
                yield entity, self.by_entity[entity]

    def ip_rate(self, host: str) -> int | None:
        """How many connections a second an address may make; None: any number. ``host``: as plain_address spells it."""
        return self._ip_rates.get(host, self._ip_rates.get(None))

    def update(self, request: Any) -> None:
        """What UpdateMetadata says of quotas, if it does. News that cannot be read change nothing."""
        is_full = request.type == TYPE_FULL
        if not request.client_quotas and not is_full:
            return
        try:
            records = decode_news(request.client_quotas) if request.client_quotas else []
        except CorruptRecordError as e:
            log.error("The controller's quotas are not understood, so those before go on to count: %s", e)
            return
        if is_full:
            self.by_entity.clear()
        for record in records:
            if isinstance(record, ClientQuotaRecord):
                self._learn(record)
        self.limits_clients = any(entity[0][0] != IP for entity in self.by_entity)
        self._ip_rates = _ip_rates(self.by_entity)
        self.version += 1

    def _learn(self, record: ClientQuotaRecord) -> None:
        if record.value is not None:
            self.by_entity.setdefault(record.entity, {})[record.key] = record.value
            return
        found = self.by_entity.get(record.entity, {})
        found.pop(record.key, None)
        if not found:
            self.by_entity.pop(record.entity, None)


def _ip_rates(by_entity: Mapping[QuotaEntity, Mapping[str, float]]) -> dict[str | None, int]:
    found: dict[str | None, int] = {}
    for ((kind, name), *_), quotas in by_entity.items():
        rate = quotas.get(CONNECTION_CREATION_RATE)
        if kind == IP and rate is not None:
            host = None if name is None else plain_address(name)
            found[host] = min(int(rate), found.get(host, int(rate)))
    return found
