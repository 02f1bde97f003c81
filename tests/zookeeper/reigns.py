"""One broker at a time acts as the controller: checked of a transaction log, whatever was done to the brokers.

A claim writes /controller_epoch, and what it makes of its version is what every later write of that reign checks. So a
write that took effect although another one had claimed would be one whose check is of an older version, or that has no
check at all. What brokers write of themselves (registrations, failed directories, nodes that every tree has) is checked
by nothing, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.metadata import znode_paths as paths
from holdfast.metadata.znodes import base_nodes
from tests.zookeeper.transaction_log import Op, Transaction

CONTROLLERS = (
    paths.TOPICS + "/", "/config/", "/admin/", paths.OUR_BROKERS + "/", paths.OUR_CONFIGS + "/", paths.METADATA_LOG,
    paths.UNFINISHED, paths.PRODUCER_IDS, paths.FEATURE,
)  # fmt: skip
"""Below these, or at them, only the controller writes."""
BASE = frozenset(node.path for node in base_nodes())


def check_reigns(transactions: Iterable[Transaction], *, by_hand: frozenset[int] = frozenset()) -> list[int]:
    """The epochs in the order of their claims; AssertionError names the write of somebody who was not the controller.

    Paths are below the chroot. ``by_hand``: sessions of who may write anything."""
    epochs: list[int] = []
    version, holder = 0, 0
    for tx in transactions:
        if tx.failed or tx.session in by_hand:
            continue
        claim = next((op for op in tx.ops if op.op == "setData" and op.path == paths.CONTROLLER_EPOCH), None)
        checked = next((op.version for op in tx.ops if op.op == "check" and op.path == paths.CONTROLLER_EPOCH), None)
        if claim is not None:
            assert claim.version is not None
            assert any(op.op == "create" and op.path == paths.CONTROLLER for op in tx.ops), f"no claim: {tx}"
            assert claim.version > version, f"epoch version {claim.version} after {version}: {tx}"
            epochs.append(int(claim.data))
            version, holder = claim.version, tx.session
        elif checked is not None:
            assert (checked, tx.session) == (version, holder), f"now {version} of 0x{holder:x}: {tx}"
        else:
            wrong = [op.path for op in tx.ops if _is_controllers(op)]
            assert not wrong, f"unchecked writes of {wrong}: {tx}"
    assert epochs == sorted(set(epochs)), f"epochs {epochs}"
    return epochs


def _is_controllers(op: Op) -> bool:
    makes_base = op.op == "create" and op.path in BASE
    return not makes_base and op.op != "check" and op.path.startswith(CONTROLLERS)
