"""UpdateFeatures (57): which levels of features are in force; asked of any broker, decided by the controller
(controller/features.py)."""

from __future__ import annotations

import contextlib
from typing import Any

from holdfast.broker.handlers.base import RequestContext, respond
from holdfast.broker.handlers.forwarding import at_controller
from holdfast.broker.handlers.topics import milliseconds, tell
from holdfast.controller.feature_events import FeatureUpdate, UpdateFeatures, UpgradeType
from holdfast.model.errors import InvalidUpdateVersionError

_WITH_RESULTS = 1
"""The last version that answers for each feature."""


@at_controller
async def handle_update_features(ctx: RequestContext, request: Any) -> Any:
    """Versions 0-2. The first update that cannot be made refuses all of them. Answered once live brokers know."""
    updates = tuple(
        FeatureUpdate(name=u.feature, level=u.max_version_level, upgrade_type=_upgrade_type(u))
        for u in request.feature_updates
    )
    try:
        await ctx.submit(UpdateFeatures(updates=updates, validate_only=getattr(request, "validate_only", False)))
    except InvalidUpdateVersionError as e:
        text = f"The update failed for all features since the following feature had an error: {e.message}"
        return respond(ctx, error_code=e, error_message=text)
    await tell(ctx, milliseconds(request.timeout))
    if ctx.version > _WITH_RESULTS:
        return respond(ctx, error_code=None, error_message=None)
    results = [{"feature": u.name, "error_code": None, "error_message": "NONE"} for u in updates]
    return respond(ctx, error_code=None, error_message=None, results=results)


def _upgrade_type(update: Any) -> UpgradeType | None:
    """Version 0 says by a flag whether the level may go down."""
    number = getattr(update, "upgrade_type", None)
    if number is None:
        return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
    with contextlib.suppress(ValueError):
        return UpgradeType(number)
    return None
