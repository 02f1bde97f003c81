"""DescribeUserScramCredentials (50) and AlterUserScramCredentials (51): who can log in by SCRAM.

Version 0. Any broker describes what it was told, and that are mechanisms and iterations: no key leaves it. The
controller decides changes; their answer waits until the brokers that live know them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from holdfast.broker.handlers.base import RequestContext, older_protocol, respond
from holdfast.broker.handlers.forwarding import TELL_TIMEOUT_S, at_controller
from holdfast.controller.user_events import AlterScramUsers, ScramUpsertion
from holdfast.model.errors import DuplicateResourceError, HoldfastError, ResourceNotFoundError


async def handle_describe_user_scram_credentials(ctx: RequestContext, request: Any) -> Any:
    """Those that are named, or all."""
    view = ctx.broker.user_view
    times = Counter(user.name for user in request.users) if request.users else Counter(view.names)
    results = []
    for name, count in times.items():
        found = view.iterations(name)
        error: HoldfastError | None = None
        if count > 1:
            error = DuplicateResourceError(
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            )
        elif not found:
            error = ResourceNotFoundError(f"Attempt to describe a user credential that does not exist: {name}")
        results.append({"user": name, **_told(error, ""), "credential_infos": [] if error else [
            {"mechanism": int(mechanism), "iterations": iterations} for mechanism, iterations in found.items()
        ]})  # fmt: skip
    return respond(ctx, error_message="", results=results)


@at_controller
async def handle_alter_user_scram_credentials(ctx: RequestContext, request: Any) -> Any:
    """One result for each user."""
    if (older := older_protocol(ctx)) is not None:
        names = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
        return respond(ctx, results=[{"user": name, **_told(older, None)} for name in names])
    reply = await ctx.submit(
        AlterScramUsers(
            deletions=tuple((d.name, int(d.mechanism)) for d in request.deletions),
            upsertions=tuple(
                ScramUpsertion(
                    name=u.name,
                    mechanism=int(u.mechanism),
                    iterations=int(u.iterations),
                    salt=bytes(u.salt),
                    salted_password=bytes(u.salted_password),
                )
                for u in request.upsertions
            ),
        )
    )
    if ctx.broker.controller is not None:
        await ctx.broker.controller.told_everybody(TELL_TIMEOUT_S)
    return respond(ctx, results=[{"user": name, **_told(error, None)} for name, error in reply.users])


def _told(error: HoldfastError | None, nothing: str | None) -> dict[str, Any]:
    return {"error_code": error, "error_message": nothing if error is None else error.message}
