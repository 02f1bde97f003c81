"""How much users and clients may, and how long they wait after more (KIP-13, KIP-124, KIP-219, KIP-599). Pure.

    limits_of(quotas of entities, user, client)  -> Limits      which of Kafka's eight levels counts, by kind of quota
    Budgets.spend(whose, amount, limit, now_ms)  -> ms to wait   0: within the quota

A quota is a rate. Whoever has one has a budget: it fills at that rate, holds what the rate gives within the window of
the quota, and may be overdrawn by the last request; then nothing more is taken until it is even again. So over a window
no more passes than Kafka's mean allows, a pause may be followed by a burst, and who always wants more gets the rate and
not more, in each second (docs/decisions/0059).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from holdfast.security.quota_entities import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    QuotaEntity,
)

Owner: TypeAlias = tuple[str | None, str | None]
"""Whose budget it is: a user, a client, or a user with a client. All clients of one that has a quota share it."""
MOST_BUDGETS: Final = 10_000
"""Names come from clients. Beyond so many the one that was not used for the longest is forgotten, and begins anew."""
_LOOKED_AT: Final = 2
"""Budgets that are looked at with each use, and forgotten if they are full: a new one is, too."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One quota that counts: how much a second, and whose budget is drawn on."""

    rate: float
    owner: Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What counts for a user and a client; None: no quota of this kind. Bytes a second; of the time of a thread,
    percent; of changes that the controller makes, partitions a second."""

    produce: Limit | None = None
    fetch: Limit | None = None
    request: Limit | None = None
    mutation: Limit | None = None

    @property
    def is_any(self) -> bool:
        """Whether there is anything to be measured."""
        return not (self.produce is self.fetch is self.request is self.mutation is None)


UNLIMITED: Final = Limits()


def limits_of(by_entity: Mapping[QuotaEntity, Mapping[str, float]], user: str, client: str) -> Limits:
    """By Kafka's eight levels, the first that has a quota of the kind."""
    levels: tuple[tuple[QuotaEntity, Owner], ...] = (
        (((USER, user), (CLIENT_ID, client)), (user, client)),
        (((USER, user), (CLIENT_ID, None)), (user, client)),
        (((USER, user),), (user, None)),
        (((USER, None), (CLIENT_ID, client)), (user, client)),
        (((USER, None), (CLIENT_ID, None)), (user, client)),
        (((USER, None),), (user, None)),
        (((CLIENT_ID, client),), (None, client)),
        (((CLIENT_ID, None),), (None, client)),
    )
    there = [(by_entity[entity], owner) for entity, owner in levels if entity in by_entity]
    if not there:
        return UNLIMITED

    def first(key: str) -> Limit | None:
        return next((Limit(quotas[key], owner) for quotas, owner in there if key in quotas), None)

    return Limits(
        produce=first(PRODUCER_BYTE_RATE),
        fetch=first(CONSUMER_BYTE_RATE),
        request=first(REQUEST_PERCENTAGE),
        mutation=first(CONTROLLER_MUTATION_RATE),
    )


class Budgets:
    """The budgets of one kind of quota. ``window_s``: what the rate gives in that time may be spent at once."""

    __slots__ = ("_budgets", "_window_s")

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._budgets: OrderedDict[Owner, tuple[float, int, float]] = OrderedDict()
        """What is left, as of when, and the rate, by owner; the one that was used last is the last."""

    def __len__(self) -> int:
        return len(self._budgets)

    def spend(self, amount: float, limit: Limit, now_ms: int) -> int:
        """So much was used now. How long it takes until the budget is even; 0: it is."""
        left = self._left(limit, now_ms) - amount
        self._budgets[limit.owner] = left, now_ms, limit.rate
        self._budgets.move_to_end(limit.owner)
        self._forget(now_ms)
        return _delay_ms(left, limit.rate)

    def delay_ms(self, limit: Limit, now_ms: int) -> int:
        """How long it takes until the budget is even, if nothing is used meanwhile."""
        return _delay_ms(self._left(limit, now_ms), limit.rate)

    def _left(self, limit: Limit, now_ms: int) -> float:
        whole = limit.rate * self._window_s
        found = self._budgets.get(limit.owner)
        if found is None:
            return whole
        left, then_ms, _ = found
        return min(whole, left + limit.rate * max(0, now_ms - then_ms) / 1000)

    def _forget(self, now_ms: int) -> None:
        """Those that are full again, as far as they are among the oldest; and what is too many."""
        budgets = self._budgets
        for _ in range(min(_LOOKED_AT, len(budgets) - 1)):
            owner, (left, then_ms, rate) = next(iter(budgets.items()))
            if left + rate * (now_ms - then_ms) / 1000 < rate * self._window_s:
                break
            del budgets[owner]
        while len(budgets) > MOST_BUDGETS:
            budgets.popitem(last=False)


def _delay_ms(left: float, rate: float) -> int:
    return 0 if left >= 0 else max(1, math.ceil(-left / rate * 1000))
