"""What must be true where the metadata is in an ensemble, looked at from the ensemble's side.

Owns what was committed of claims, and since when something is not as it has to be. It goes by what the servers have,
and by which process has which session, never by what a store believes:

* what is written of the metadata is written by the session that claimed last (H-08), and the next claim has the next
  epoch;
* only the owner, or who claimed last, takes away the node of a live broker;
* a reign ends soon after its session has expired, and soon after another one has claimed;
* a live broker has a node of its present session, soon after it has one (H-10);
* no broker takes the metadata of an older controller for the newer;
* at rest the znodes say what the controller's image is.

``Soon`` counts only while nothing is wrong with the ensemble or with the way to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from holdfast.coordination.zookeeper_client import Check, Create, Delete, Operation, Put
from holdfast.metadata import znode_paths, znode_values
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.znode_tree import TreeNode, image_of
from tests.simulation.ensemble_tree import Author
from tests.simulation.watch import Violation

if TYPE_CHECKING:
    from tests.simulation.ensemble_cluster import EnsembleSimulation
    from tests.simulation.ensemble_process import EnsembleProcess

_Key: TypeAlias = tuple[int, str, int | None]
"""A broker, what is not so, and of which reign or session."""
LOOK_S = 0.25
REIGN_ENDS_S = 0.5
NODE_IS_THERE_S = 3.0
_OF_CONTROLLERS = tuple(
    f"{path}/"
    for path in (
        znode_paths.TOPICS, znode_paths.TOPIC_CONFIGS, znode_paths.BROKER_CONFIGS, znode_paths.OUR_BROKERS,
        znode_paths.OUR_CONFIGS,
    )
)  # fmt: skip
"""What is below these is written by controllers alone."""


class EnsembleWatch:
    """See the module's docstring; of one run."""

    def __init__(self, run: EnsembleSimulation) -> None:
        self._run = run
        self._claims: dict[int, int] = {}
        """The session that has claimed with each epoch."""
        self._owners: dict[str, int] = {}
        """The session that made the node of a live broker last, by its path."""
        self._epoch = 0
        self._since: dict[_Key, float] = {}
        self._told: dict[int, tuple[object, tuple[int, int]]] = {}
        run.ensemble.on_commit = self._committed

    # -- what is written ---------------------------------------------------------------------------------------

    def _committed(self, zxid: int, operations: Sequence[Operation], author: Author) -> None:
        """The ensemble has done a write."""
        root = len(self._run.ROOT)
        try:
            self._check_write([(operation.path[root:], operation) for operation in operations], author.session)
        except Violation as e:
            self._run.fail(e)

    def _check_write(self, operations: Sequence[tuple[str, Operation]], session: int) -> None:
        written = {path for path, operation in operations if not isinstance(operation, Check)}
        made = {path for path, operation in operations if isinstance(operation, Create)}
        for path, operation in operations:
            if path == znode_paths.CONTROLLER_EPOCH and isinstance(operation, Put):
                self._claimed(znode_values.read_controller_epoch_node(path, operation.data), session)
            elif path.startswith(f"{znode_paths.BROKER_IDS}/"):
                if isinstance(operation, Create):
                    self._owners[path] = session
                elif isinstance(operation, Delete) and path not in made:
                    self._check_removed(path, session)
        if any(path.startswith(_OF_CONTROLLERS) for path in written) and znode_paths.METADATA_LOG not in written:
            raise Violation(f"{sorted(written)} are written without {znode_paths.METADATA_LOG}")
        is_of_a_reign = any(path == znode_paths.METADATA_LOG and isinstance(each, Put) for path, each in operations)
        if is_of_a_reign and self._claims.get(self._epoch) != session:
            raise Violation(
                f"session {session:#x} writes metadata, and the last to claim was session "
                f"{self._claims.get(self._epoch, 0):#x} with epoch {self._epoch}"
            )

    def _claimed(self, epoch: int, session: int) -> None:
        if epoch != self._epoch + 1:
            raise Violation(f"a claim has epoch {epoch}: the one before had {self._epoch}")
        self._epoch = epoch
        self._claims[epoch] = session
        self._run.note(f"session {session:#x} has claimed with epoch {epoch}")

    def _check_removed(self, path: str, session: int) -> None:
        """Without another one in its place, which its broker makes."""
        if session not in (self._owners.get(path), self._claims.get(self._epoch)):
            raise Violation(f"session {session:#x}, which is not the controller's, takes away {path}")

    # -- what is so --------------------------------------------------------------------------------------------

    def look(self) -> None:
        """At all brokers, as they are now."""
        run = self._run
        for node in run.nodes:
            process = run.process_of(node)
            if process is None or process.process.stopped or not run.ensemble_faults.is_well:
                self._since = {key: at_s for key, at_s in self._since.items() if key[0] != node.broker_id}
                continue
            self._look_at_reign(process)
            self._look_at_node(process)
            self._look_at_told(process)

    def _look_at_reign(self, process: EnsembleProcess) -> None:
        node = process.node
        reign = node.broker.controller if node.broker is not None else None
        epoch = -1 if reign is None else reign.epoch
        is_over = reign is not None and (epoch != self._epoch or self._claims[epoch] not in self._run.ensemble.sessions)
        self._not_for_long(
            (node.broker_id, "reign", epoch), is_over and process.is_connected, REIGN_ENDS_S,
            f"broker {node.broker_id} goes on as the controller with epoch {epoch}, which is over",
        )  # fmt: skip

    def _look_at_node(self, process: EnsembleProcess) -> None:
        node, session = process.node, process.session
        number = None if session is None else session.session_id
        is_entered = node.broker is not None and hasattr(node.broker, "membership")
        path = self._run.ROOT + znode_paths.broker_id(node.broker_id)
        found = self._run.ensemble.tree.get(path)
        is_wrong = found is None or found.session != number
        owner = "missing" if found is None else f"of session {found.session:#x}"
        self._not_for_long(
            (node.broker_id, "node", number), is_entered and process.is_connected and is_wrong, NODE_IS_THERE_S,
            f"broker {node.broker_id} has session {number or 0:#x}, and {path} is {owner}",
        )  # fmt: skip

    def _look_at_told(self, process: EnsembleProcess) -> None:
        broker = process.node.broker
        if broker is None:
            return
        before = self._told.get(broker.broker_id)
        if before is not None and before[0] is broker and broker.told < before[1]:
            raise Violation(f"broker {broker.broker_id} takes metadata {broker.told} after {before[1]}")
        self._told[broker.broker_id] = (broker, broker.told)

    def _not_for_long(self, key: _Key, is_so: bool, seconds: float, what: str) -> None:
        if not is_so:
            self._since.pop(key, None)
            return
        now_s = self._run.loop.time()
        if now_s - self._since.setdefault(key, now_s) > seconds:
            raise Violation(f"for more than {seconds:g} s {what}")

    # -- at rest -----------------------------------------------------------------------------------------------

    def is_kept(self, image: ClusterImage) -> None:
        """The znodes say what the image is."""
        root, tree = self._run.ROOT, self._run.ensemble.tree
        ours = {
            path[len(root) :]: TreeNode(data=node.data, version=node.version, czxid=node.czxid)
            for path, node in sorted(tree.items())
            if path.startswith(f"{root}/") and not path.startswith(f"{root}{znode_paths.BROKER_IDS}/")
        }
        again = image_of(ours, image.cluster_id)
        for what in ("topics", "brokers", "configs"):
            if getattr(again, what) != getattr(image, what):
                raise Violation(f"{what} of the image are not what the znodes say")
