"""How many partitions who asks may have the controller make and remove (KIP-599), on the controller.

Each topic of a request draws on the budget of ``controller_mutation_rate``. Where it is overdrawn already, a topic of a
request that knows of this is refused (THROTTLING_QUOTA_EXCEEDED); an older one is only told to wait.
"""

from __future__ import annotations

from typing import Final

from holdfast.broker.handlers.base import RequestContext
from holdfast.model.errors import ThrottlingQuotaExceededError
from holdfast.protocol.apis import ApiKey

STRICT_FROM: Final = {ApiKey.CREATE_TOPICS: 6, ApiKey.DELETE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 3}
"""The versions whose clients know the error."""


class Mutations:
    """Of one request. ``throttle_ms``: what its answer says."""

    def __init__(self, ctx: RequestContext, *, counts: bool = True) -> None:
        """``counts``: it changes something."""
        self._quotas = ctx.broker.quotas
        self._who = ctx.principal.name, ctx.client_id
        own = ctx.asker is None and ctx.connection.session.is_brokers
        self._counts = counts and ctx.broker.quota_view.limits_clients and not own
        self._is_strict = ctx.version >= STRICT_FROM[ApiKey(ctx.api_key)]
        self.throttle_ms = 0

    def refusal(self, partitions: int) -> ThrottlingQuotaExceededError | None:
        """Why a topic with so many partitions that come or go is not touched; None: it may be, and is counted."""
        if not self._counts or partitions <= 0:
            return None
        if self._is_strict:
            delay_ms = self._quotas.mutation_delay_ms(*self._who)
            if delay_ms:
                self.throttle_ms = max(self.throttle_ms, delay_ms)
                return ThrottlingQuotaExceededError("The throttling quota has been exceeded.")
        self.throttle_ms = max(self.throttle_ms, self._quotas.mutate(*self._who, partitions))
        return None
