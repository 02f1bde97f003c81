"""``holdfast log-dirs``: the disks of the brokers, and what an operator does with them.

Changes concern one broker and run there; nothing here decides anything. ``describe`` is log_dir_describe.py.
"""

from collections.abc import Callable, Iterable

import click

from holdfast.cli.completing import complete_brokers
from holdfast.cli.connecting import UsageError, bootstrap_option
from holdfast.cli.failing import reason_of
from holdfast.cli.kafka_errors import Declined, DeclinedUse, KafkaErrorsGroup, run
from holdfast.cli.kafka_words import qualified, said
from holdfast.cli.log_dir_describe import describe
from holdfast.cli.log_dir_inspect import inspect
from holdfast.cli.log_dir_lines import (
    NoSuchBrokers,
    parse_replica,
    room_lines,
)
from holdfast.client.admin import AdminClient
from holdfast.client.disks import alter_replica_log_dirs, change_disk, describe_disks, last_copies, same_path
from holdfast.client.views import DisksView, DiskView, LogDirView
from holdfast.model.errors import LogDirNotFoundError, UnknownTopicOrPartitionError
from holdfast.model.types import BrokerId, TopicPartition, named
from holdfast.protocol.operating import DirAction

KEPT = "log.dirs follows with holdfast up; change it yourself for other brokers"


@click.group(name="log-dirs", cls=KafkaErrorsGroup)
def log_dirs() -> None:
    """Describe the brokers' log directories, move replicas between them, take them out and in."""


log_dirs.add_command(describe)
log_dirs.add_command(inspect)


def broker_option(command: Callable[..., None]) -> Callable[..., None]:
    """``--broker N``."""
    return click.option(
        "--broker",
        type=int,
        required=True,
        metavar="ID",
        shell_complete=complete_brokers,
        help="The broker whose directory it is.",
    )(command)


async def known(client: AdminClient, broker: BrokerId) -> None:
    """NoSuchBrokers for a broker that the cluster has not."""
    existing = sorted((await client.metadata(())).brokers)
    if broker not in existing:
        raise NoSuchBrokers(
            f"there is no broker {broker}: expected one of {', '.join(map(str, existing))}",
            f"ERROR: broker {broker} does not exist. Current existent brokers: {existing}",
        )


# -- changes -------------------------------------------------------------------------------------------------------


def change(bootstrap: str, broker: BrokerId, action: DirAction, path: str, done: str, *, force: bool = False) -> None:
    """Ask for it, and say how the directory is then."""

    async def work(client: AdminClient) -> None:
        await known(client, broker)
        view = await change_disk(client, broker, action, path, force=force)
        disk = find(view, path)
        state = "" if disk is None else f": {disk.state}, {len(disk.replicas)} replicas"
        click.echo(f"broker {broker}: {path} {done}{state}")

    run(bootstrap, work, timeout_s=120.0)


def find(view: DisksView, path: str) -> DiskView | None:
    return next((d for d in view.disks if same_path(d.path, path)), None)


async def looked_up(client: AdminClient, broker: BrokerId, path: str) -> tuple[DisksView, DiskView]:
    """All directories of a broker, and this one. LogDirNotFoundError."""
    await known(client, broker)
    view = await describe_disks(client, broker)
    disk = find(view, path)
    if disk is None:
        raise not_a_log_dir(path, broker, view.disks)
    return view, disk


async def refuse_last_copies(client: AdminClient, broker: BrokerId, disk: DiskView, then: str) -> None:
    """Ends the command when the directory has what nobody else has; ``then``: what would become of it."""
    topics = sorted({r.tp.topic for r in disk.replicas})
    view = await client.metadata(topics) if topics else None
    last = [] if view is None else last_copies(broker, disk, view)
    if last:
        line = f"{disk.path} on broker {broker} has the last copy of {named(last)}: {then}; --force does it"
        raise Declined(line, f"ERROR: {line}")


@log_dirs.command()
@bootstrap_option
@broker_option
@click.argument("path")
@click.option("--force", is_flag=True, help="Although it has the last copy of something.")
def offline(bootstrap: str, broker: int, path: str, force: bool) -> None:
    """Use the directory PATH no more, as if its disk had failed: leaders move, its files are closed."""

    async def work(client: AdminClient) -> None:
        _, disk = await looked_up(client, broker, path)
        if disk.state != "offline" and not force:
            await refuse_last_copies(client, broker, disk, "nobody can read or write that while it is offline")

    run(bootstrap, work)
    change(bootstrap, broker, DirAction.OFFLINE, path, "is out of use", force=force)


@log_dirs.command()
@bootstrap_option
@broker_option
@click.argument("path")
def online(bootstrap: str, broker: int, path: str) -> None:
    """Use the directory PATH again, without a restart: mended, or an empty disk in its place."""
    change(bootstrap, broker, DirAction.ONLINE, path, "is in use")


@log_dirs.command()
@bootstrap_option
@broker_option
@click.argument("path")
@click.option("--create", is_flag=True, help="Although it does not exist, or holds files of others.")
def add(bootstrap: str, broker: int, path: str, create: bool) -> None:
    """Use one more directory, PATH, for new replicas.

    A broker of `holdfast up` has it at its next start as well; for any other put it into log.dirs of its properties
    file. One that is left out is told when the broker starts, and what only it has waits for it.
    """
    change(bootstrap, broker, DirAction.ADD, path, f"is added ({KEPT})", force=create)


@log_dirs.command()
@bootstrap_option
@broker_option
@click.argument("path")
@click.option(
    "--force", is_flag=True, help="Although there is too little room for what it held, or nobody else has it."
)
@click.option("--check", is_flag=True, help="Only say what its replicas need and what room there is.")
def remove(bootstrap: str, broker: int, path: str, force: bool, check: bool) -> None:
    """Have the directory PATH no more: one that holds nothing, or one that is offline.

    What an offline one held is made anew on the others. A broker of `holdfast up` has it no more at its next start; for
    any other take it out of log.dirs of its properties file.
    """

    async def work(client: AdminClient) -> bool:
        view, disk = await looked_up(client, broker, path)
        lines, enough = room_lines(broker, view, path)
        click.echo("\n".join(lines))
        if not check and not force:
            await refuse_last_copies(client, broker, disk, "that is lost when it is removed")
        return enough

    enough = run(bootstrap, work)
    if not enough and not force:
        line = f"too little room for the replicas of {path}: free some, add a directory, or use --force"
        raise Declined(line, f"ERROR: {line}")
    if not check:
        change(bootstrap, broker, DirAction.REMOVE, path, f"is removed ({KEPT})", force=force)


# -- cordons -------------------------------------------------------------------------------------------------------


def change_cordons(bootstrap: str, broker: BrokerId, paths: tuple[str, ...], everything: bool, *, on: bool) -> None:
    if bool(paths) is everything:
        raise UsageError("expected PATH..., or --all for every log directory of the broker")

    async def work(client: AdminClient) -> list[str]:
        from holdfast.cli.log_dir_cordons import change_cordon

        await known(client, broker)
        return await change_cordon(client, broker, paths, on=on)

    for line in run(bootstrap, work):
        click.echo(line)


@log_dirs.command()
@bootstrap_option
@broker_option
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--all", "everything", is_flag=True, help="Every directory, those to come included: the broker itself.")
def cordon(bootstrap: str, broker: int, paths: tuple[str, ...], everything: bool) -> None:
    """Place no new replicas in the directories PATH; what they hold is served as before (KIP-1066).

    The same as cordoned.log.dirs of the broker: kept by the cluster, also when the broker restarts or is down.
    """
    change_cordons(bootstrap, broker, paths, everything, on=True)


@log_dirs.command()
@bootstrap_option
@broker_option
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--all", "everything", is_flag=True, help="Every directory.")
def uncordon(bootstrap: str, broker: int, paths: tuple[str, ...], everything: bool) -> None:
    """Place new replicas in the directories PATH again."""
    change_cordons(bootstrap, broker, paths, everything, on=False)


# -- moves ---------------------------------------------------------------------------------------------------------


@log_dirs.command()
@bootstrap_option
@broker_option
@click.argument("replicas", nargs=-1, metavar="[TOPIC-PARTITION]...")
@click.option("--from", "source", metavar="PATH", help="Everything that is in this directory, too.")
@click.option("--to", "target", required=True, metavar="PATH", help="The directory that they shall be in.")
@click.option("--no-wait", is_flag=True, help="Only begin.")
def move(
    bootstrap: str, broker: int, replicas: tuple[str, ...], source: str | None, target: str, no_wait: bool
) -> None:
    """Move replicas of one broker to another of its log directories, while they are in use."""
    if not replicas and source is None:
        raise UsageError("nothing to move: expected TOPIC-PARTITION, or --from PATH")
    named_replicas = list(map(replica_of, replicas))

    async def work(client: AdminClient) -> list[Declined]:
        await known(client, broker)
        wanted = dict.fromkeys(named_replicas)
        dirs = (await client.describe_log_dirs([broker]))[broker]
        if source is not None:
            wanted |= dict.fromkeys(replicas_in(broker, dirs, source))
        path = next((d.path for d in dirs if same_path(d.path, target)), None)  # as the broker spells it
        if path is None:
            raise not_a_log_dir(target, broker, dirs)
        await refuse_unknown(client, wanted)
        outcomes = await alter_replica_log_dirs(client, broker, dict.fromkeys(wanted, path)) if wanted else {}
        refused = {tp: error for tp, error in outcomes.items() if error is not None}
        failures = [
            Declined(
                f"{tp} on broker {broker}: {reason_of(e)}", f"ERROR {tp} on broker {broker}: {qualified(e, said(e))}"
            )
            for tp, e in refused.items()
        ]
        begun = [tp for tp in outcomes if tp not in refused]
        for tp in begun:
            click.echo(f"Successfully started moving log directory to {path} for replica {tp} with broker {broker}")
        if not wanted:
            click.echo(f"{source} on broker {broker} holds nothing to move")
        if begun and not no_wait:
            from holdfast.cli.log_dir_moves import watch_moves

            failures += await watch_moves(client, broker, begun, path)
        return failures

    try:
        failed = run(bootstrap, work)
    except KeyboardInterrupt:
        click.echo(
            "moves that have begun go on: holdfast log-dirs describe --replicas; a move back to where it is cancels it",
            err=True,
        )
        raise
    if failed:
        raise Declined.several(failed)


def replica_of(text: str) -> TopicPartition:
    """DeclinedUse: it names no replica."""
    try:
        return parse_replica(text)
    except ValueError as e:
        raise DeclinedUse(str(e)) from None


def not_a_log_dir(path: str, broker: BrokerId, dirs: Iterable[LogDirView | DiskView]) -> LogDirNotFoundError:
    there = ", ".join(d.path for d in dirs)
    return LogDirNotFoundError(f"{path} is no log directory of broker {broker}: expected one of {there}")


async def refuse_unknown(client: AdminClient, wanted: Iterable[TopicPartition]) -> None:
    """UnknownTopicOrPartitionError that says which partitions there are."""
    tps = list(wanted)
    view = await client.metadata(sorted({tp.topic for tp in tps}))
    for tp in tps:
        topic = view.topics.get(tp.topic)
        if topic is None or topic.error is not None:
            raise UnknownTopicOrPartitionError(f"{tp}: there is no topic {tp.topic}")
        if topic.partition(tp.partition) is None:
            raise UnknownTopicOrPartitionError(f"{tp}: {tp.topic} has partitions 0 to {len(topic.partitions) - 1}")


def replicas_in(broker: BrokerId, dirs: tuple[LogDirView, ...], path: str) -> list[TopicPartition]:
    """What is in a directory. LogDirNotFoundError, KafkaStorageError."""
    found = next((d for d in dirs if same_path(d.path, path)), None)
    if found is None:
        raise not_a_log_dir(path, broker, dirs)
    if found.error is not None:
        raise found.error
    return sorted(r.tp for r in found.replicas if not r.future)
