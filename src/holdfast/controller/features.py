"""Feature levels of the cluster: UpdateFeatures (KIP-584), and what a cluster begins with.

A level goes up only where every registered broker knows it, and down only where that is asked for. All updates of a
request are taken, or none.
"""

from typing import Final

from holdfast.controller.events import BrokerRegister, Decision
from holdfast.controller.feature_events import FeatureUpdate, UpdateFeatures, UpgradeType
from holdfast.controller.state import ControllerState
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.records import FeatureLevelRecord
from holdfast.model.errors import InvalidUpdateVersionError, UnsupportedVersionError
from holdfast.model.features import NEW_CLUSTER, SUPPORTED, Levels
from holdfast.model.types import TimestampMs

_ABSENT: Final = Levels(0, 0)


def update_features(state: ControllerState, event: UpdateFeatures, now_ms: TimestampMs) -> Decision:
    """Reply None; InvalidUpdateVersionError of the first update that cannot be made."""
    image = state.image
    for update in event.updates:
        reason = _refusal(image, update)
        if reason is not None:
            text = f"Invalid update version {update.level} for feature {update.name}. {reason}"
            return Decision(reply=InvalidUpdateVersionError(text))
    if event.validate_only:
        return Decision()
    return Decision(
        records=tuple(
            FeatureLevelRecord(name=update.name, level=update.level)
            for update in event.updates
            if image.features.get(update.name, 0) != update.level
        )
    )


def _refusal(image: ClusterImage, update: FeatureUpdate) -> str | None:
    current = image.features.get(update.name, 0)
    if update.upgrade_type is None:
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    unsupported = _unsupported(image, update)
    if unsupported is not None:
        return unsupported
    if update.level < current and update.upgrade_type is UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    if update.level > current and update.upgrade_type is not UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    return None


def _unsupported(image: ClusterImage, update: FeatureUpdate) -> str | None:
    """Who does not know the level: this controller, or a registered broker, fenced ones too: they will be back."""
    ours = SUPPORTED.get(update.name)
    everybody = [(f"Local controller {image.controller_id}", ours)]
    for broker in sorted(image.brokers.values(), key=lambda b: b.id):
        known = {name: Levels(low, high) for name, low, high in broker.features}
        everybody.append((f"Broker {broker.id}", known.get(update.name, _ABSENT)))
    for who, levels in everybody:
        if levels is None or (levels == _ABSENT and update.level):
            return f"{who} does not support this feature."
        if not levels.min <= update.level <= levels.max:
            return f"{who} only supports versions {levels.min}-{levels.max}"
    return None


def beginning(image: ClusterImage) -> tuple[FeatureLevelRecord, ...]:
    """What a new cluster begins with, when its first broker registers; nothing for one that is older."""
    if image.brokers or image.topics or image.features or image.configs:
        return ()
    return tuple(FeatureLevelRecord(name=name, level=level) for name, level in sorted(NEW_CLUSTER.items()))


def missing(image: ClusterImage, event: BrokerRegister) -> UnsupportedVersionError | None:
    """Why a broker cannot take part: it does not know a level that is in force."""
    known = {name: Levels(low, high) for name, low, high in event.features}
    for name, level in sorted(image.features.items()):
        low, high = known.get(name, _ABSENT)
        if not low <= level <= high:
            return UnsupportedVersionError(
                f"Broker {event.broker_id} knows versions {low}-{high} of feature {name}, which is at {level}: "
                f"it is older than the cluster"
            )
    return None
