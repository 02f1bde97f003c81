"""Certificates of a broker's listeners, and their renewal while it runs.

The files are looked at every second, on a thread of their own, since a disk may hang; and at once when somebody sets
one of the keys, to the same value, too, as Kafka's tools do. What can be used is in force for the next connection and
closes none. What cannot, is another party's certificate, is not valid now, or would not be believed by other brokers,
is told once and changes nothing; a broker that starts ends by it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from holdfast.broker.certificate_checks import check_believed, check_shown
from holdfast.broker.tls_listener import InForce, ListeningTls, Marks, check_successor, loaded, marks_of
from holdfast.client.listener_tls import ListenerTlsOptions
from holdfast.model.errors import ConfigError, HoldfastError
from holdfast.model.listeners import SecurityProtocol
from holdfast.model.log_events import LogEvent, told

if TYPE_CHECKING:
    from holdfast.broker.platform import Platform, WorkThread
    from holdfast.client.outgoing import Outgoing
    from holdfast.model.config import BrokerConfig
    from holdfast.model.listeners import Listening

log = logging.getLogger(__name__)

_Found: TypeAlias = tuple[ListeningTls, Mapping[str, str], InForce | tuple[Marks, str] | None]
LOOK_S: Final = 1.0
_WITH_TLS: Final = (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)


class CertificatesHost(Protocol):
    """The broker whose certificates they are."""

    config: BrokerConfig
    outgoing: Outgoing
    platform: Platform
    loop: asyncio.AbstractEventLoop

    def thread(self, name: str) -> WorkThread: ...

    def end_thread(self, thread: WorkThread) -> None: ...


class Certificates:
    """See the module's docstring."""

    def __init__(self, broker: CertificatesHost) -> None:
        self._broker = broker
        self._listeners: dict[str, ListeningTls] = {}
        self._of_brokers: frozenset[str] = frozenset()
        """The listeners that brokers use among each other."""
        self._given: dict[str, Mapping[str, str]] = {}
        """By listener: what the keys said when it was looked at last."""
        self._refused: dict[str, tuple[Marks, str, bool]] = {}
        """By listener: files and reason of what cannot be used, and whether that was told."""
        self._thread: WorkThread | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_looking = False
        self._own: Mapping[str, str] | None = None

    def open(self, listening: Listening) -> None:
        """For a broker that starts: ConfigError names the key of a certificate that cannot be used, be it for a
        listener or for what this broker asks of others."""
        given = given_by(self._broker.config)
        self._listeners = first_shown(self._broker.config, self._broker.platform.wall_s())
        self._given = dict.fromkeys(self._listeners, given)
        self._of_brokers = frozenset(name for name in self._listeners if listening.use_of(name).for_brokers)
        self._show_to_others(given)
        self._broker.outgoing.check(listening.told_to_brokers, listening.told_to_controller)
        if self._listeners:
            self._thread = self._broker.thread("certificates")
            self._timer = self._broker.loop.call_later(LOOK_S, self._tick)

    def _show_to_others(self, given: Mapping[str, str]) -> None:
        """Connections to other brokers from now on have what is in force here."""
        in_force = {name: listener.in_force.tls.settings for name, listener in self._listeners.items()}
        self._broker.outgoing.renew(given, in_force)

    def ends(self) -> dict[str, int]:
        """By listener, when the certificate in force is over: seconds since 1970."""
        return {name: listener.in_force.ends_s for name, listener in self._listeners.items()}

    def of(self, listener: str) -> ListeningTls | None:
        """None: it speaks no TLS."""
        return self._listeners.get(listener)

    async def check(self, config: BrokerConfig) -> None:
        """ConfigError: with this configuration a listener could not show a certificate, or would show one that it may
        not."""
        if self._thread is None:
            return
        given, listeners = given_by(config), tuple(self._listeners.values())
        outcome: asyncio.Future[None] = self._broker.loop.create_future()

        def read() -> None:
            for each in listeners:
                self._check(each, loaded(given, each.name, each.protocol), given)

        def done(_: None, error: HoldfastError | None) -> None:
            if not outcome.done():
                outcome.set_exception(error) if error is not None else outcome.set_result(None)

        self._thread.submit(read, done)
        await outcome

    def configured(self, own: Mapping[str, str]) -> None:
        """The cluster has told this broker's keys, perhaps to the values that they had: as Kafka's tools ask for a
        look at the files."""
        if own is not self._own:
            self._own = own
            self.look()

    async def take_over(self) -> None:
        """Look at the files now, and wait until what the keys say is in force, or told to be unusable."""
        if self._thread is None:
            return
        given, listeners = given_by(self._broker.config), tuple(self._listeners.values())
        looked: asyncio.Future[None] = self._broker.loop.create_future()

        def done(found: list[_Found] | None, error: HoldfastError | None) -> None:
            self._looked(found, error)
            if not looked.done():
                looked.set_result(None)

        # Whatever was given to the thread before is in force, or not, before this is.
        self._thread.submit(lambda: [(each, given, self._renewed(each, given, True)) for each in listeners], done)
        await looked

    def look(self) -> None:
        """Look at the files now."""
        if self._thread is None or self._is_looking:
            return
        self._is_looking = True
        given = given_by(self._broker.config)
        wanted = [
            (each, given != self._given[each.name] or each.name in self._refused) for each in self._listeners.values()
        ]
        self._thread.submit(
            lambda: [(each, given, self._renewed(each, given, anew)) for each, anew in wanted], self._looked
        )

    def _tick(self) -> None:
        self._timer = self._broker.loop.call_later(LOOK_S, self._tick)
        self.look()

    def _looked(
        self,
        found: list[_Found] | None,
        error: HoldfastError | None,
    ) -> None:
        self._is_looking = False
        if error is not None:
            log.error("certificates could not be looked at: %s: %s", type(error).__name__, error)
        changed = False
        for listener, given, outcome in found or ():
            self._given[listener.name] = given
            if outcome is None:
                self._refused.pop(listener.name, None)
            elif isinstance(outcome, InForce):
                self._refused.pop(listener.name, None)
                changed = self._renew(listener, outcome) or changed
            else:
                self._refuse(listener, *outcome)
        if changed:
            self._show_to_others(given_by(self._broker.config))

    def _renew(self, listener: ListeningTls, outcome: InForce) -> bool:
        before, listener.in_force = listener.in_force, outcome
        if outcome.context is before.context:  # the same in another file
            return False
        log.info(
            "listener %s: the certificate of %s is renewed for connections from now on", listener.name, outcome.subject,
            extra=told(LogEvent.CERTIFICATE_RENEWED, listener=listener.name, subject=outcome.subject),
        )  # fmt: skip
        return True

    def _refuse(self, listener: ListeningTls, marks: Marks, reason: str) -> None:
        """Told at the second look that finds the same: at the first one somebody may still be writing the file."""
        before = self._refused.get(listener.name)
        again = before is not None and before[:2] == (marks, reason)
        is_told = before is not None and again and before[2]
        if again and not is_told:
            log.warning(
                "listener %s keeps its certificate: %s", listener.name, reason,
                extra=told(LogEvent.CERTIFICATE_REFUSED, listener=listener.name, reason=reason),
            )  # fmt: skip
        self._refused[listener.name] = marks, reason, again

    # -- on the thread -----------------------------------------------------------------------------------------

    def _renewed(
        self, listener: ListeningTls, given: Mapping[str, str], anew: bool
    ) -> InForce | tuple[Marks, str] | None:
        """What is to be in force, or why it cannot be; None: nothing has changed."""
        marks = marks_of(ListenerTlsOptions(given, listener.name).files())
        if marks == listener.in_force.marks and not anew:
            return None
        try:
            found = loaded(given, listener.name, listener.protocol)
            if found.tls.speaks_as(listener.in_force.tls):
                return replace(listener.in_force, tls=found.tls, marks=found.marks, options=found.options)
            self._check(listener, found, given)
        except ConfigError as error:
            return marks, error.message
        return found

    def _check(self, listener: ListeningTls, found: InForce, given: Mapping[str, str]) -> None:
        """ConfigError: what was found must not be in force."""
        check_successor(listener.in_force, found, listener.name)
        check_shown(found, listener.in_force, self._broker.platform.wall_s())
        for name in self._of_brokers:
            other = self._listeners[name]
            if other is listener:
                check_believed(found, listener.in_force)
            elif found.options.shows_the_same(ListenerTlsOptions(given, name)):
                check_believed(loaded(given, name, other.protocol), other.in_force)

    # ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._broker.end_thread(self._thread)
            self._thread = None


def first_shown(config: BrokerConfig, now_s: float) -> dict[str, ListeningTls]:
    """What the listeners of a broker that starts show, by name. ConfigError: one of them may not."""
    given, found = given_by(config), {}
    for endpoint in config.listening.bound:
        name, protocol = endpoint.name, endpoint.security_protocol
        if protocol in _WITH_TLS:
            found[name] = ListeningTls(name, protocol, loaded(given, name, protocol))
    for name, listener in found.items():
        check_shown(listener.in_force, None, now_s)
        if config.listening.use_of(name).for_brokers:
            check_believed(listener.in_force, None)
    return found


def given_by(config: BrokerConfig) -> Mapping[str, str]:
    """The broker's keys as text, the dynamic ones before those of its file."""
    return {**config.unknown, **config.static, **config.dynamic_default, **config.dynamic}
