"""Who was refused what, and who was let do what: lines in Kafka's form, by the logger ``kafka.authorizer.logger``.

Refusals are told at INFO, where what was refused had been asked for: a list that leaves out what one may not see is
none. What is allowed is told at DEBUG. Of each of the two at most ``PER_SECOND`` lines in a second, the same one once:
a client that is refused asks again every 10 ms. What is left out is counted, and told at the end of that second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from holdfast.model.log_events import LogEvent, told
from holdfast.model.shown import cut
from holdfast.protocol.apis import ApiKey
from holdfast.security.acls import ResourcePattern
from holdfast.security.authorizer import AclDecision

if TYPE_CHECKING:
    from holdfast.security.principal import Principal
    from holdfast.security.resources import Operation

log = logging.getLogger("kafka.authorizer.logger")

PER_SECOND: Final = 50
MOST_RESOURCE: Final = 300
"""Characters of a resource: of a topic all of them, of a group or a transactional id, which may have 32 KB, some."""


class Later(Protocol):
    """An event loop, for what is to be told later."""

    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[[], None], /) -> object: ...


class _Lines:
    """Of one kind."""

    def __init__(self, event: LogEvent, level: int, words: str, loop: Later) -> None:
        self._event = event
        self._level = level
        self._words = words
        self._loop = loop
        self._second = -1
        self._seen: set[tuple[str, str, Operation, str, int, AclDecision]] = set()
        self._left_out = 0

    @property
    def wanted(self) -> bool:
        return log.isEnabledFor(self._level)

    def tell(
        self, who: str, host: str, operation: Operation, resource: ResourcePattern, api_key: int, decision: AclDecision
    ) -> None:
        if self.is_full():
            self.leave_out()
            return
        name = cut(str(resource), MOST_RESOURCE)
        key = (who, host, operation, name, api_key, decision)
        if key in self._seen:
            self.leave_out()
            return
        self._seen.add(key)
        request, rule = _request_name(api_key), decision.rule
        log.log(
            self._level,
            "Principal = %s is %s operation = %s from host = %s on resource = %s for request = %s with "
            "resourceRefCount = 1 based on rule %s",
            who, self._words, operation.log_name, host, name, request, rule,
            extra=told(
                self._event, principal=who, operation=operation.log_name, host=host, resource=name,
                request=request, rule=rule,
            ),
        )  # fmt: skip

    def is_full(self) -> bool:
        """Whether there is no room for a line in this second."""
        second = int(self._loop.time())
        if second != self._second:
            self._second = second
            self._seen.clear()
        return len(self._seen) >= PER_SECOND

    def leave_out(self) -> None:
        """Count a line that is not told."""
        if not self._left_out:
            self._loop.call_later(1.0, self._tell_left_out)
        self._left_out += 1

    def _tell_left_out(self) -> None:
        count, self._left_out = self._left_out, 0
        message = "%d more are left out: %s the same, or more than %d in a second"
        log.log(self._level, message, count, self._words.lower(), PER_SECOND, extra=told(self._event, count=count))


class AuditLog:
    """See the module's docstring."""

    def __init__(self, loop: Later) -> None:
        self._denied = _Lines(LogEvent.ACCESS_DENIED, logging.INFO, "Denied", loop)
        self._allowed = _Lines(LogEvent.ACCESS_ALLOWED, logging.DEBUG, "Allowed", loop)

    @property
    def tells_allowed(self) -> bool:
        """Whether anybody reads what is allowed."""
        return self._allowed.wanted

    def leaves_out(self) -> bool:
        """Whether what was decided is not asked for any more in this second, as there are lines enough: a request can
        name thousands of things. It counts as left out."""
        denied = self._denied
        if self.tells_allowed or not (denied.wanted and denied.is_full()):
            return False
        denied.leave_out()
        return True

    def tell(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: ResourcePattern,
        api_key: int,
        decision: AclDecision,
    ) -> None:
        """That something was asked for, and what was decided."""
        lines = self._allowed if decision.allowed else self._denied
        if lines.wanted:
            lines.tell(cut(str(principal)), host, operation, resource, api_key, decision)


def _request_name(api_key: int) -> str:
    """``CreateTopics``."""
    try:
        return "".join(word.capitalize() for word in ApiKey(api_key).name.split("_"))
    except ValueError:
        return str(api_key)
