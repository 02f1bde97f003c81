"""Cordoned log directories, as placement sees them (KIP-1066).

Which directories of a broker are cordoned is in its registration: the broker says so when it registers and with its
heartbeats, and what it said stays known while it is down, also to the next controller (K1066-11, -12).

A broker that starts knows its properties file only. What was set at run time it hears from the controller, later; so
where a value of that kind is kept, the file's does not count (``at_registration``).
"""

from typing import Final

from holdfast.controller.events import BrokerHeartbeat, BrokerRegister
from holdfast.controller.state import ControllerState
from holdfast.metadata.image import BrokerImage, ClusterImage
from holdfast.metadata.records import BrokerRegistrationChangeRecord
from holdfast.model.types import DirectoryId

CORDONED: Final = "cordoned.log.dirs"
ALL: Final = "*"


def takes_replicas(state: ControllerState, broker: BrokerImage) -> bool:
    """Whether a directory is left for a new replica (K1066-05)."""
    return refusal(state, broker) is None


def refusal(state: ControllerState, broker: BrokerImage) -> str | None:
    """Why the broker can take no new replica: none of its directories is neither cordoned nor dead, as far as is known.

    A broker without a cordon is judged by its life alone: it ends when its last directory dies.
    """
    if not broker.cordoned or not broker.log_dirs:
        return None
    left = set(broker.log_dirs).difference(broker.cordoned)
    if not left:
        return "all its log directories are cordoned"
    if left <= state.offline_dirs.get(broker.id, frozenset()):
        return "all its log directories are cordoned or offline"
    return None


def at_registration(image: ClusterImage, event: BrokerRegister) -> tuple[DirectoryId, ...]:
    """What is cordoned of a broker that registers, until its heartbeats say more."""
    known = image.brokers.get(event.broker_id)
    before = () if known is None else known.cordoned
    kept = image.broker_configs(event.broker_id).get(CORDONED)
    if kept is not None and kept.strip() == ALL:
        return tuple(sorted(event.log_dirs))
    if kept is not None and not kept.strip():
        return ()
    if event.cordoned is None or (kept is not None and known is not None):
        return before
    return tuple(sorted(event.cordoned))


def change(broker: BrokerImage, event: BrokerHeartbeat) -> BrokerRegistrationChangeRecord | None:
    """What a heartbeat says anew of the broker's directories; None: nothing."""
    log_dirs = _news(event.log_dirs, broker.log_dirs)
    cordoned = _news(event.cordoned, broker.cordoned)
    if log_dirs is None and cordoned is None:
        return None
    return BrokerRegistrationChangeRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=log_dirs, cordoned=cordoned
    )


def _news(told: tuple[DirectoryId, ...] | None, known: tuple[DirectoryId, ...]) -> tuple[DirectoryId, ...] | None:
    if told is None:
        return None
    dirs = tuple(sorted(told))
    return None if dirs == known else dirs
