"""What the log is told of a link to the controller that ends.

What ends by itself is a line for people who look for a reason, once in a while for each. What a person has to mend, as
a certificate that is not believed or a right that is missing, is a warning, once: it names whom others take this broker
for, and the key that makes it so. It is told when it has come again, since a controller that has just begun may not
know all users and rights yet.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from holdfast.client.errors import AuthenticationError
from holdfast.model.errors import ClusterAuthorizationFailedError, ConfigError

if TYPE_CHECKING:
    from holdfast.client.outgoing import Outgoing
    from holdfast.metadata.store import ControllerLocation

log = logging.getLogger(__name__)

SAID_AGAIN_S: Final = 10.0
"""Why a link ended is logged once in this time for each reason: who is taken by nobody tries again and again."""
MAX_REASONS: Final = 100
RETRY_S: Final = 0.5
"""After what a person has to mend. A user that the controller has yet to hear of may be known by then."""
WARNED_AT: Final = 3
"""How often the same trouble has come, one after the other or with others between, when it is told."""


class LinkTroubles:
    """See the module's docstring. ``now_s`` is the loop's clock."""

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self._quiet_until_s: dict[str, float] = {}
        self._came: dict[str, int] = {}
        """Since the link was up: how often each trouble that a person has to mend."""

    def is_up(self) -> None:
        """The controller takes this broker: what comes from now on is new."""
        self._came.clear()

    def ended(self, error: Exception, controller: ControllerLocation | None, now_s: float) -> float:
        """Tell why. After how many seconds it may be tried again."""
        if not isinstance(error, AuthenticationError | ClusterAuthorizationFailedError):
            self._say(f"controller link: {type(error).__name__}: {error}", now_s)
            return 0.0
        line = self._trouble(error, controller)
        if len(self._came) >= MAX_REASONS:
            self._came.clear()
        came = self._came[line] = self._came.get(line, 0) + 1
        if came == WARNED_AT:
            log.warning("%s", line)
        else:
            self._say(line, now_s)
        return 0.0 if came == 1 and isinstance(error, ClusterAuthorizationFailedError) else RETRY_S

    def _trouble(self, error: Exception, controller: ControllerLocation | None) -> str:
        if controller is None:
            return f"controller link: {type(error).__name__}: {error}"
        try:
            who = str(self._outgoing.introduction(controller.endpoint))
        except ConfigError as wrong:
            who = f"nobody: {wrong.message}"
        there = f"broker {controller.broker_id}, the controller, at {controller.endpoint}"
        if isinstance(error, ClusterAuthorizationFailedError):
            return (
                f"controller link: {there} does not let this broker take part, which comes as {who}: expected that "
                "name in super.users of every broker, as it stands here and with semicolons between names, or the "
                "right to ClusterAction on the cluster"
            )
        return f"controller link: {there}: {error}; this broker comes as {who}"

    def _say(self, line: str, now_s: float) -> None:
        if now_s < self._quiet_until_s.get(line, 0.0):
            return
        if len(self._quiet_until_s) >= MAX_REASONS:
            self._quiet_until_s.clear()
        self._quiet_until_s[line] = now_s + SAID_AGAIN_S
        log.info("%s", line)
