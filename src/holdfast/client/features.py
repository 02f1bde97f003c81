"""Which features a cluster has in force, and the change of that: ApiVersions (18), UpdateFeatures (57)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.client.admin import CONTROLLER_TIMEOUT_MS, AdminClient
from holdfast.client.cluster import milliseconds
from holdfast.client.refused import raise_for
from holdfast.model.types import BrokerId

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


class FeatureView(NamedTuple):
    """One feature as a broker tells it."""

    name: str
    supported_min: int
    supported_max: int
    level: int
    """In force in the cluster; 0: not."""


async def describe_features(
    client: AdminClient, broker_id: BrokerId | None = None
) -> tuple[tuple[FeatureView, ...], int | None]:
    """The features that the asked broker knows, by name, and the epoch of what is in force; None: not known."""
    from kio.schema.api_versions.v4.request import ApiVersionsRequest

    # version 4: the first that tells of features whose lowest level is 0
    request = ApiVersionsRequest(client_software_name="holdfast", client_software_version="1")
    answer = await (client.ask_any(request) if broker_id is None else client.ask_broker(broker_id, request))
    raise_for(answer.error_code.value, None, "features")
    levels = {f.name: int(f.max_version_level) for f in answer.finalized_features}
    found = (
        FeatureView(f.name, int(f.min_version), int(f.max_version), levels.get(f.name, 0))
        for f in answer.supported_features
    )
    epoch = int(answer.finalized_features_epoch)
    return tuple(sorted(found)), None if epoch < 0 else epoch


async def update_features(
    client: AdminClient, levels: Mapping[str, int], upgrade_type: int, *, validate_only: bool = False
) -> None:
    """All of them, or none: InvalidUpdateVersionError. Not retried: an answer may be lost although it was done."""
    from kio.schema.update_features.v1.request import FeatureUpdateKey, UpdateFeaturesRequest
    from kio.static.primitive import i8, i16

    answer = await client.ask_controller(
        UpdateFeaturesRequest(
            timeout=milliseconds(CONTROLLER_TIMEOUT_MS),
            feature_updates=tuple(
                FeatureUpdateKey(feature=name, max_version_level=i16(level), upgrade_type=i8(upgrade_type))
                for name, level in levels.items()
            ),
            validate_only=validate_only,
        )
    )
    raise_for(answer.error_code.value, answer.error_message, "features")
