"""Names of topics, groups and brokers for the shell, as the cluster has them now.

A key that is pressed must not wait and nothing may be printed then: within a second there is an answer, or none.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

from holdfast.cli.command_config import CHOSEN, VARIABLE, CommandConfig, read_command_config
from holdfast.cli.lean import lean_imports
from holdfast.cli.profiles import load_profile
from holdfast.client.security import SecuritySettings

if TYPE_CHECKING:
    from holdfast.client.admin import AdminClient

LIMIT_S: Final = 1.0
MOST: Final = 1000
"""Names that a shell is given."""
BOOTSTRAP_VARIABLE: Final = "HOLDFAST_BOOTSTRAP_SERVER"
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
Question = Callable[["AdminClient"], Awaitable[Iterable[str]]]


async def topic_names(client: AdminClient) -> list[str]:
    return sorted((await client.metadata()).topics)


async def group_names(client: AdminClient) -> list[str]:
    return sorted(group.group_id for group in await client.list_groups())


async def broker_ids(client: AdminClient) -> list[str]:
    return list(map(str, sorted((await client.metadata(())).brokers)))


def completer(question: Question, *, lists: bool = False) -> Completer:
    """``lists``: the value is names with commas between them, of which the last is completed."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, begun = incomplete.rpartition(",") if lists else ("", "", incomplete)
        names = (name for name in names_of(ctx, question) if name.startswith(begun))
        return [CompletionItem(before + comma + name) for name, _ in zip(names, range(MOST), strict=False)]

    return complete


def names_of(ctx: click.Context, question: Question) -> list[str]:
    """What the cluster answers; nothing where it does not, whatever the reason is."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with lean_imports():
            asking = _asked(bootstrap_of(ctx), config_of(ctx).security, question)
            return asyncio.run(asyncio.wait_for(asking, LIMIT_S))
    except Exception:
        return []
    finally:
        logging.disable(before)


def bootstrap_of(ctx: click.Context) -> str:
    """As the command itself would have it from what is typed so far."""
    typed = ctx.params.get("bootstrap")
    if isinstance(typed, str) and typed:
        return typed
    said = os.environ.get(BOOTSTRAP_VARIABLE) or config_of(ctx).bootstrap
    return said or load_profile(None, os.environ).bootstrap or DEFAULT_BOOTSTRAP


def config_of(ctx: click.Context) -> CommandConfig:
    """The same, of its --command-config."""
    found = ctx.meta.get(CHOSEN)
    if isinstance(found, CommandConfig):
        return found
    path = os.environ.get(VARIABLE) or load_profile(None, os.environ).command_config
    return CommandConfig() if path is None else read_command_config(path)


async def _asked(bootstrap: str, security: SecuritySettings | None, question: Question) -> list[str]:
    from holdfast.client.admin import AdminClient

    async with AdminClient(
        bootstrap, client_id="holdfast-completion", timeout_s=LIMIT_S, connect_timeout_s=LIMIT_S, security=security
    ) as client:
        return list(await question(client))


complete_topics: Final = completer(topic_names)
complete_topic_lists: Final = completer(topic_names, lists=True)
complete_groups: Final = completer(group_names)
complete_brokers: Final = completer(broker_ids)
complete_broker_lists: Final = completer(broker_ids, lists=True)
