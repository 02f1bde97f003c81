"""What befalls the ensemble of a simulated cluster, and the ways of brokers to it.

Owns what is wrong with which server and which way, and until when. None of it loses what is committed, so that nothing
has to wait for its turn, and several may be wrong at a time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from holdfast.metadata import znode_paths
from tests.simulation.faults import Fault, Kind

if TYPE_CHECKING:
    from tests.simulation.ensemble_cluster import EnsembleSimulation
    from tests.simulation.ensemble_process import EnsembleProcess
    from tests.simulation.node import Node

T = TypeVar("T")
LONGEST_S = 20.0
MOMENT_S = 3.0
APART_S = 2.0
"""At least so long nothing that another controller says reaches the one before."""
SLOW_S = (0.05, 0.3, 1.0)
"""From a request to its answer."""
KINDS = frozenset(kind for kind in Kind if kind.name.startswith("ZK_"))


class EnsembleFaults:
    """See the module's docstring; of one run."""

    def __init__(self, run: EnsembleSimulation, rng: random.Random) -> None:
        self._run = run
        self._usual_s = [rng.uniform(0.0002, 0.003) for _ in run.ensemble.servers]
        self._wrong = 0
        """How many things are wrong with servers."""
        self._since = 0
        """How often everything was mended: what was to be mended later is well."""
        self._mended_s = 0.0
        """When something was mended last."""
        self._be_slow(0.0)

    @property
    def is_well(self) -> bool:
        """Nothing is wrong with any server."""
        return self._wrong == 0

    def is_troubled(self, broker_id: int) -> bool:
        """Something was wrong with a server, or the way of this broker, a moment ago."""
        is_mended = self._run.loop.time() - self._mended_s > MOMENT_S
        return not (self.is_well and is_mended and not self._run.cuts[broker_id])

    def befall(self, fault: Fault) -> None:
        """One fault of the schedule."""
        run, rng = self._run, random.Random(repr(fault))
        if run.healing:
            return
        node, for_s = run.nodes[fault.broker], min(fault.for_s, LONGEST_S)
        controller = run.controller_node()
        match fault.kind:
            case Kind.ZK_EXPIRE:
                self._expire(node if controller is None or rng.random() < 0.5 else controller)
            case Kind.ZK_LOST:
                self._lose(node if controller is None or rng.random() < 0.3 else controller, rng)
            case Kind.ZK_SLOW:
                self._for(for_s, self._be_slow, rng.choice(SLOW_S), 0.0)
            case Kind.ZK_AWAY:
                self._be_away(for_s, rng)
            case Kind.ZK_BEHIND:
                self._be_behind(for_s, rng)
            case Kind.ZK_CUT:
                self.cut(node, for_s, rng.choice((("to_server",), ("to_client",), ("to_server", "to_client"))))
            case Kind.ZK_FREEZE:
                frozen = controller or node
                run.note(f"broker {frozen.broker_id} is frozen for longer than a session")
                run.stop(frozen, run.SESSION_S + 1.0 + for_s % 4)
            case Kind.ZK_RETURN:
                killed = controller or node
                run.note(f"broker {killed.broker_id} is killed and comes back inside its session")
                run.down(killed, 0.05 + for_s % 2)
            case Kind.ZK_DEPOSE:
                run.ensemble.take_away(run.ROOT + znode_paths.CONTROLLER)
            case Kind.ZK_APART:
                apart = controller or node
                run.note(f"broker {apart.broker_id} is cut off from all but the ensemble")
                run.isolate(apart, APART_S + for_s)
                run.network.later(APART_S * rng.random(), self._expire, apart)

    def _expire(self, node: Node) -> None:
        process = self._run.process_of(node)
        session = None if process is None else process.session
        if session is not None:
            self._run.note(f"the session of broker {node.broker_id} expires")
            self._run.ensemble.end_session(session.session_id)

    def _lose(self, node: Node, rng: random.Random) -> None:
        process = self._run.process_of(node)
        if process is not None and process.clients:
            fate = (rng.randrange(3), rng.random() < 0.6)
            what = "the answer to" if fate[1] else "the request of"
            self._run.note(f"broker {node.broker_id} loses {what} a write, {fate[0]} writes from now")
            process.clients[-1].link.fate = fate

    # -- servers -----------------------------------------------------------------------------------------------

    def _for(self, for_s: float, do: Callable[[T], None], wrong: T, well: T) -> None:
        """Do it to servers with what is wrong, and ``for_s`` later with what is well."""
        do(wrong)
        self._wrong += 1
        since = self._since

        def mend() -> None:
            if since == self._since:
                self._wrong -= 1
                self._mended_s = self._run.loop.time()
                do(well)

        self._run.network.later(for_s, mend)

    def _be_slow(self, more_s: float) -> None:
        for server, usual_s in zip(self._run.ensemble.servers, self._usual_s, strict=True):
            server.delay_s = usual_s + more_s

    def _be_away(self, for_s: float, rng: random.Random) -> None:
        """All servers, or one, whose clients go to others."""
        ensemble = self._run.ensemble
        which = range(len(ensemble.servers)) if rng.random() < 0.6 else (rng.randrange(len(ensemble.servers)),)
        self._run.note(f"servers {list(which)} of the ensemble are away")

        def be(is_up: bool) -> None:
            ensemble.up(*which) if is_up else ensemble.down(*which)

        self._for(for_s, be, False, True)

    def _be_behind(self, for_s: float, rng: random.Random) -> None:
        """A server hears nothing of what is committed, and some of the connections hop to it."""
        run, ensemble = self._run, self._run.ensemble
        behind = rng.randrange(len(ensemble.servers))
        run.note(f"server {behind} of the ensemble is behind")
        self._for(for_s, lambda lags: ensemble.lag(behind, lags), True, False)
        run.network.later(for_s * rng.uniform(0.1, 0.6), self._hop, behind, rng.randrange(1, 8))

    def _hop(self, server: int, who: int) -> None:
        for node in self._run.nodes:
            process = self._run.process_of(node)
            session = None if process is None else process.session
            if process is None or session is None or session.connection is None or not who >> node.broker_id - 1 & 1:
                continue
            if session.connection.server.index != server:
                self._run.note(f"the connection of broker {node.broker_id} hops to server {server}")
                process.clients[-1].prefer(server)
                session.connection.drop()

    # -- ways --------------------------------------------------------------------------------------------------

    def cut(self, node: Node, for_s: float, ways: tuple[str, ...]) -> None:
        """Nothing gets through that way between a machine and the ensemble, and nobody is told."""
        run = self._run
        run.note(f"broker {node.broker_id} is cut off from the ensemble: {', '.join(ways)}")
        run.cuts[node.broker_id].update(ways)
        process = run.process_of(node)
        for client in () if process is None else process.clients:
            session = run.ensemble.sessions.get(client.session_id)
            if session is not None and session.connection is not None and session.connection.is_open:
                run.ensemble.cut(client.session_id, to_server="to_server" in ways, to_client="to_client" in ways)
            else:
                client.link.to_server &= "to_server" not in ways
                client.link.to_client &= "to_client" not in ways
        run.network.later(for_s, self._mend, node)

    def _mend(self, node: Node) -> None:
        self._mended_s = self._run.loop.time()
        self._run.cuts[node.broker_id].clear()
        process = self._run.process_of(node)
        if process is not None:
            self._mend_process(process)

    def _mend_process(self, process: EnsembleProcess) -> None:
        for client in process.clients:
            self._run.ensemble.mend(client.link)

    def mend_all(self) -> None:
        """Nothing is wrong any more."""
        self._wrong, self._since = 0, self._since + 1
        ensemble = self._run.ensemble
        self._be_slow(0.0)
        for server in range(len(ensemble.servers)):
            ensemble.lag(server, False)
        ensemble.up()
        for node in self._run.nodes:
            self._mend(node)
