"""A simulated cluster whose metadata is in a modelled ZooKeeper ensemble.

Owns the ensemble, what joins it to the processes of brokers (ensemble_process.py), what befalls it (ensemble_faults.py)
and what must be true of it (ensemble_watch.py). All else is as with the other store (cluster.py).
"""

from __future__ import annotations

import functools
import random
from typing import Any

from holdfast.coordination.zookeeper_client import ConnectionLostError
from holdfast.metadata.image import ClusterImage
from tests.simulation.cluster import PROPERTIES, Outcome, Simulation
from tests.simulation.ensemble import Ensemble
from tests.simulation.ensemble_faults import KINDS, MOMENT_S, EnsembleFaults
from tests.simulation.ensemble_process import EnsembleProcess, VirtualClock, store_in_fibers
from tests.simulation.ensemble_watch import LOOK_S, EnsembleWatch
from tests.simulation.faults import ENSEMBLE_WEIGHTS, Fault, Kind
from tests.simulation.node import Node, SimProcess
from tests.simulation.watch import Violation

AGAIN_S = 1.0
"""From the end of a process that gave up to the next one."""


class EnsembleSimulation(Simulation):
    """See the module's docstring."""

    ROOT = "/sim"
    SESSION_S = 6.0
    usual = ENSEMBLE_WEIGHTS
    properties = {
        **PROPERTIES,
        "metadata.store": "zookeeper",
        "zookeeper.connect": f"ensemble:2181{ROOT}",
        "zookeeper.session.timeout.ms": str(int(SESSION_S * 1000)),
    }

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, **options)
        rng = random.Random(f"ensemble {seed}")
        self.ensemble = Ensemble(VirtualClock(self.loop))
        self.cuts: dict[int, set[str]] = {node.broker_id: set() for node in self.nodes}
        """By broker: which ways between its machine and the ensemble are cut."""
        self.ensemble_faults = EnsembleFaults(self, rng)
        self.ensemble_watch = EnsembleWatch(self)
        self._servers = rng
        """By which a process chooses the server that it connects to."""
        self._processes: dict[SimProcess, EnsembleProcess] = {}
        self._went_on_s: dict[str, float] = {}
        """When machines went on whose broker was stopped."""
        for node in self.nodes:
            node.thread = lambda node, process, name: self._of(node, process).thread(name)
            node.lanes = lambda broker_id, process: self._of(self.nodes[broker_id - 1], process).lanes  # type: ignore[return-value]
            node.ensemble = lambda node, process: self._of(node, process).clients_of
            node.when_gone = self._gone
            node.gives_up = functools.partial(self._gives_up, node)

    def run(self) -> Outcome:
        with store_in_fibers():
            return super().run()

    def close(self) -> None:
        for process in list(self._processes):
            self._gone(process)
        super().close()

    def fail(self, violation: Violation) -> None:
        """Something that must be true is not."""
        self._fail(violation)

    # -- processes ---------------------------------------------------------------------------------------------

    def _of(self, node: Node, process: SimProcess) -> EnsembleProcess:
        found = self._processes.get(process)
        if found is None:
            server = self._servers.randrange(len(self.ensemble.servers))
            found = EnsembleProcess(node, process, self.ensemble, self.cuts[node.broker_id], server)
            self._processes[process] = found
        return found

    def _gives_up(self, node: Node, error: Exception) -> bool:
        """A broker that starts and reaches no ensemble ends, as Kafka's does; who looks after it starts it again. One
        that was stopped meanwhile had no time to reach it (seed 965934214)."""
        was_stopped = self.loop.time() - self._went_on_s.get(node.machine, -MOMENT_S) < MOMENT_S
        is_troubled = was_stopped or self.ensemble_faults.is_troubled(node.broker_id)
        excused = isinstance(error, ConnectionLostError) and is_troubled
        if excused:
            self.note(f"broker {node.broker_id} gives up: {error}")
            self.network.later(AGAIN_S, self._start, node)
        return excused

    def process_of(self, node: Node) -> EnsembleProcess | None:
        """What its process has of the ensemble, if one is alive."""
        return None if node.process is None else self._processes.get(node.process)

    def _gone(self, process: SimProcess) -> None:
        gone = self._processes.pop(process, None)
        if gone is not None:
            gone.end()

    def controller_node(self) -> Node | None:
        """Of the newest reign."""
        reign = self._reign()
        return None if reign is None else self.nodes[reign._broker.broker_id - 1]

    # -- a run -------------------------------------------------------------------------------------------------

    async def _main(self) -> None:
        self.network.later(LOOK_S, self._look)
        await super()._main()

    def _look(self) -> None:
        try:
            self.ensemble_watch.look()
        except Violation as e:
            self._fail(e)
        self.network.later(LOOK_S, self._look)

    def _is_kept(self, image: ClusterImage) -> None:
        self.ensemble_watch.is_kept(image)

    # -- faults ------------------------------------------------------------------------------------------------

    def _befall(self, fault: Fault) -> None:
        if fault.kind in KINDS:
            self.note(f"FAULT {fault}")
            self.ensemble_faults.befall(fault)
            return
        super()._befall(fault)
        if fault.kind is Kind.ISOLATE and fault.for_s % 0.002 < 0.001:
            self.ensemble_faults.cut(self.nodes[fault.broker], fault.for_s, ("to_server", "to_client"))

    def stop(self, node: Node, for_s: float) -> None:
        """SIGSTOP: the ensemble hears nothing of it either."""
        super().stop(node, for_s)
        self._freeze(node.process, True)

    def _go_on(self, process: SimProcess) -> None:
        self._went_on_s[process.machine] = self.loop.time()
        self._freeze(process, False)
        super()._go_on(process)

    def _freeze(self, process: SimProcess | None, is_frozen: bool) -> None:
        ours = None if process is None else self._processes.get(process)
        session = None if ours is None else ours.session
        if session is not None:
            self.ensemble.freeze(session.session_id, is_frozen)

    def _heal(self) -> None:
        for process in self._processes:
            self._freeze(process, False)
        self.ensemble_faults.mend_all()
        super()._heal()
