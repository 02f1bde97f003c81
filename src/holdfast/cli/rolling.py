"""A rolling restart: one broker after the other, each only when it is safe, until all were restarted or a disk dies.

Owns the order of things and what is printed. Whether it is safe is client/restart_rules.py, how a broker is restarted
restart_ways.py, what is remembered restart_state.py.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import click

from holdfast.cli.failing import Failed, asked
from holdfast.cli.restart_state import RollingProgress, StateFile
from holdfast.cli.restart_ways import RestartWay
from holdfast.client.admin import AdminClient
from holdfast.client.health import Survey
from holdfast.client.restart_rules import BadDirectory, Hindrance, died, hindrances, next_broker
from holdfast.client.survey import Members, members, opinions, survey
from holdfast.client.views import BrokerNode
from holdfast.model.errors import HoldfastError
from holdfast.model.types import BrokerId

LOOK_S: Final = 0.2
LOOKS: Final = 2
"""So often in a row it has to be safe: brokers hear of a change one after the other."""
ASK_TIMEOUT_S: Final = 10.0
ASK_BACK_S: Final = 2.0
"""Of a broker that was started just now: soon it is asked again."""


class RollingLook(NamedTuple):
    """What the cluster told at one moment: the survey, and the same as each broker sees it."""

    found: Members
    opinions: tuple[Survey, ...]


def look(bootstrap: str) -> RollingLook:
    """HoldfastError when nobody answers."""

    async def work(client: AdminClient) -> RollingLook:
        found = await members(client)
        return RollingLook(found, await opinions(client, await survey(client)))

    return asked(bootstrap, work, timeout_s=ASK_TIMEOUT_S)


def why_not(
    seen: RollingLook, broker: BrokerId | None, expected: frozenset[BrokerId], bad: frozenset[BadDirectory]
) -> tuple[Hindrance, ...]:
    """As any broker sees it, each reason once. Pure."""
    every = (each for told in seen.opinions for each in hindrances(told, broker, expected=expected, before=bad))
    return tuple({each.text: each for each in every}.values())


@dataclass(slots=True, kw_only=True)
class Rolling:
    """One run. ``accept_unavailable``: also where partitions have too few other replicas."""

    bootstrap: str
    way: RestartWay
    state: StateFile
    progress: RollingProgress
    timeout_s: float
    accept_unavailable: bool
    expected: frozenset[BrokerId]
    """Brokers that have to be there whenever one is stopped."""
    nodes: dict[BrokerId, BrokerNode] = field(default_factory=dict)
    """Where brokers are, as far as was told."""

    def run(self) -> None:
        """Failed names what stopped it; what was done is in the file then."""
        began_s = time.monotonic()
        count = len(self.progress.brokers - self.progress.done)
        seen = look(self.bootstrap)
        if self.progress.restarting is not None and self.progress.restarting not in seen.found.brokers:
            self._restart(self.progress.restarting, None)  # it is down: nothing is risked
        while (broker := next_broker(self.progress.brokers - self.progress.done, seen.found.controller_id)) is not None:
            seen = self._wait(broker)
            self._restart(broker, seen.found.brokers[broker])
        self._wait(None)
        self.state.remove()
        what = f"{count} broker{'' if count == 1 else 's'}"
        click.echo(f"Restarted {what} in {time.monotonic() - began_s:.1f} s; all replicas are in sync.")

    def _restart(self, broker: BrokerId, node: BrokerNode | None) -> None:
        self.progress.restarting = broker
        self.state.write(self.progress)
        began_s = time.monotonic()
        self.way.restart(broker, node, self.timeout_s)
        self._wait_back(broker, began_s + self.timeout_s)
        self.progress.restarting = None
        self.progress.done.add(broker)
        self.state.write(self.progress)
        click.echo(f"broker {broker}: restarted in {time.monotonic() - began_s:.1f} s")

    def _wait_back(self, broker: BrokerId, limit_s: float) -> None:
        """Until it serves. Failed when it ended instead, or does not come: it is still the one that is being restarted
        then, with which the next run begins."""
        while (reason := self._why_not_back(broker)) is not None:
            self.way.check(broker)
            if time.monotonic() > limit_s:
                raise Failed(
                    f"stopped: broker {broker} was restarted, and does not serve within {self.timeout_s:g} s: {reason}",
                    f"restarted so far: {_listed(self.progress.done)}; the same command begins with broker {broker}",
                )
            time.sleep(LOOK_S)

    def _why_not_back(self, broker: BrokerId) -> str | None:
        """None: the controller has it, and it answers where the controller says."""
        try:
            node = asked(self._servers(), members, timeout_s=ASK_TIMEOUT_S).brokers.get(broker)
            if node is None:
                return "the controller does not count it among the brokers that live"
            if broker in asked(_address(node), members, timeout_s=ASK_BACK_S).brokers:
                return None
        except HoldfastError as e:
            return str(e)
        return "it does not count itself among the brokers that live"

    def _wait(self, broker: BrokerId | None) -> RollingLook:
        """Until this broker may be stopped; without one, until the cluster is whole."""
        began_s = time.monotonic()
        limit_s, safe, told = began_s + self.timeout_s, 0, ""
        what = "the cluster is not whole again" if broker is None else f"broker {broker} was not stopped"
        while True:
            seen, reasons = self._reasons(broker)
            safe = 0 if reasons or seen is None else safe + 1
            if seen is not None and safe == LOOKS:
                self.nodes |= seen.found.brokers
                if broker is not None:
                    click.echo(f"broker {broker}: safe to stop after {time.monotonic() - began_s:.1f} s")
                return seen
            if reasons and reasons[0] != told:
                told = reasons[0]
                click.echo(f"waiting: {told}", err=True)
            if reasons and time.monotonic() > limit_s:
                raise Failed(*(f"{what} within {self.timeout_s:g} s: {reason}" for reason in reasons))
            for done in self.progress.done:
                self.way.check(done)
            time.sleep(LOOK_S)

    def _reasons(self, broker: BrokerId | None) -> tuple[RollingLook | None, list[str]]:
        """Why not yet. Failed when a disk has died, and where waiting is no use."""
        try:
            seen = look(self._servers())
        except HoldfastError as e:
            return None, [str(e)]
        lost = dict.fromkeys(line for told in seen.opinions for line in died(told, self.progress.bad))
        if lost:
            raise Failed(
                *(f"stopped: {line}" for line in lost),
                f"restarted so far: {_listed(self.progress.done)}; the same command goes on with the others once the "
                "directory is back, --anew takes it as it is",
            )
        found = why_not(seen, broker, self.expected, self.progress.bad)
        lasting = [each.text for each in found if each.lasting]
        if lasting and not self.accept_unavailable:
            raise Failed(*(f"{text}: --accept-unavailable restarts it all the same" for text in lasting))
        return seen, [each.text for each in found if not each.lasting]

    def _servers(self) -> str:
        """Where it was told to ask, and every broker that it has heard of since."""
        return ",".join((self.bootstrap, *(_address(node) for node in self.nodes.values())))


def _address(node: BrokerNode) -> str:
    return f"[{node.host}]:{node.port}" if ":" in node.host else node.address


def _listed(brokers: set[BrokerId]) -> str:
    return ", ".join(map(str, sorted(brokers))) or "none"


def dry_run(seen: RollingLook, progress: RollingProgress, say: Callable[[str], None]) -> bool:
    """The order, and why a broker could not be stopped at this moment; whether the first one could."""
    left, controller, first = set(progress.brokers - progress.done), seen.found.controller_id, None
    while (broker := next_broker(left, controller)) is not None:
        left.discard(broker)
        reasons = [each.text for each in why_not(seen, broker, frozenset(seen.found.brokers), progress.bad)]
        first = not reasons if first is None else first
        say(f"broker {broker}: {'; '.join(reasons) or 'safe to stop now'}")
    return first is not False
