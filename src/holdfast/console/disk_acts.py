"""Acts on log directories: move replicas, give a move up, use one again or no more, cordon, and a limit for moves."""

from collections.abc import Iterable

from holdfast.client.admin import BROKER_RESOURCE, AdminClient
from holdfast.client.configs import broker_values
from holdfast.client.cordons import cordon, cordon_config
from holdfast.client.disks import (
    alter_replica_log_dirs,
    change_disk,
    describe_disks,
    disks_of_kafka,
    last_copies,
    same_path,
)
from holdfast.client.reassignments import MOVE_THROTTLE, set_configs, throttle_moves
from holdfast.client.views import DisksView, DiskView
from holdfast.console.acts import ActField, ActPlan, ActRefused, Form, command, needed, number, said
from holdfast.console.rows import why
from holdfast.console.snapshot import Snapshot
from holdfast.console.words import age_words, bytes_words
from holdfast.model.config import ALL_DIRS, cordoned_entries
from holdfast.model.types import BrokerId, TopicPartition, named
from holdfast.protocol.operating import DirAction

USABLE = ("online", "full", "degraded")


def broker_field(snapshot: Snapshot, form: Form, *, ours: bool = False) -> ActField:
    """Which broker: one that is alive; with ``ours`` one of Holdfast's."""
    return ActField(
        name="broker",
        label="Broker",
        kind="choice",
        choices=tuple((str(b), f"broker {b}") for b in sorted(snapshot.alive) if not (ours and snapshot.is_kafka(b))),
        value=form.get("broker", ""),
    )


def path_field(snapshot: Snapshot, form: Form, name: str, label: str, *, but: str = "") -> ActField:
    """One of the directories of the broker that is chosen, ``but`` one; of all, where none is."""
    chosen = form.get("broker", "")
    found = [
        (disk.path, f"{disk.path} ({disk.state})" if chosen else f"broker {broker}: {disk.path} ({disk.state})")
        for broker, told in sorted(snapshot.disks.items())
        if chosen in ("", str(broker))
        for disk in told.disks.disks
        if disk.path != but
    ]
    return ActField(
        name=name, label=label, kind="choice", choices=tuple(dict.fromkeys(found)), value=form.get(name, "")
    )


def broker_of(snapshot: Snapshot, form: Form, *, ours: bool = False) -> BrokerId:
    """ActRefused for one that is not alive; with ``ours`` also for one that is not Holdfast's."""
    broker = number(form, "broker", "broker")
    if broker not in snapshot.alive:
        raise ActRefused(f"broker {broker} is not alive: expected one of {', '.join(map(str, sorted(snapshot.alive)))}")
    if ours and snapshot.is_kafka(broker):
        raise ActRefused(f"broker {broker} is no broker of Holdfast's and has no request for it")
    return broker


async def disks_now(client: AdminClient, snapshot: Snapshot, broker: BrokerId) -> DisksView:
    """The directories of a broker at this moment, of Apache Kafka's as far as it tells. HoldfastError."""
    if snapshot.is_kafka(broker):
        return disks_of_kafka((await client.describe_log_dirs([broker]))[broker])
    return await describe_disks(client, broker)


def disk_of(view: DisksView, broker: BrokerId, path: str) -> DiskView:
    """ActRefused for a path that is no directory of the broker."""
    found = next((d for d in view.disks if same_path(d.path, path)), None)
    if found is None:
        there = ", ".join(d.path for d in view.disks)
        raise ActRefused(f"{path} is no log directory of broker {broker}: expected one of {there}")
    return found


def replicas_named(text: str) -> list[TopicPartition]:
    """TOPIC-PARTITION, a line or a word each. ActRefused."""
    found = []
    for word in text.split():
        topic, dash, partition = word.rpartition("-")
        if not dash or not topic or not (partition.isascii() and partition.isdecimal()):
            raise ActRefused(f"replica {word!r}: expected TOPIC-PARTITION, like flights-0")
        found.append(TopicPartition(topic, int(partition)))
    return list(dict.fromkeys(found))


class MoveReplicas:
    """Replicas of one broker into another of its directories, while they are in use."""

    name, title, verb = "move", "Move replicas to another directory", "Move"
    ours = False

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def fields(self, snapshot: Snapshot, form: Form) -> list[ActField]:
        hint = "TOPIC-PARTITION, one a line. Empty: everything that is there."
        return [
            broker_field(snapshot, form),
            path_field(snapshot, form, "source", "From"),
            path_field(snapshot, form, "target", "To", but=form.get("source", "")),
            ActField(name="replicas", label="Replicas", kind="area", value=form.get("replicas", ""), hint=hint),
        ]

    async def _asked(
        self, client: AdminClient, snapshot: Snapshot, form: Form
    ) -> tuple[BrokerId, DiskView, DiskView, dict[TopicPartition, int]]:
        """Broker, source, target, and the bytes of each replica."""
        broker = broker_of(snapshot, form)
        view = await disks_now(client, snapshot, broker)
        source = disk_of(view, broker, needed(form, "source", "from"))
        target = disk_of(view, broker, needed(form, "target", "to"))
        sizes = {r.tp: r.size_bytes for r in source.replicas if not r.future}
        wanted = replicas_named(form.get("replicas", "")) or list(sizes)
        absent = [tp for tp in wanted if tp not in sizes]
        if absent:
            raise ActRefused(f"{named(absent)}: not in {source.path} of broker {broker}")
        return broker, source, target, {tp: sizes[tp] for tp in wanted}

    async def plan(self, client: AdminClient, snapshot: Snapshot, form: Form) -> ActPlan:
        broker, source, target, wanted = await self._asked(client, snapshot, form)
        size, room = sum(wanted.values()), target.usable_bytes
        rate = int((await broker_values(client, broker, (MOVE_THROTTLE,))).get(MOVE_THROTTLE) or 0)
        took = (
            f"{age_words(size / rate)} at {bytes_words(rate)}/s, the limit" if 0 < rate < 2**62 else "no limit is set"
        )
        shared = source.device is not None and source.device == target.device
        lines = [
            f"{len(wanted)} replicas of broker {broker}: copied from {source.path} to {target.path}, then used there",
            f"{bytes_words(size)} to copy: {took}",
            f"{bytes_words(room)} usable in {target.path}" + ("; both are on one file system" if shared else ""),
            "clients notice nothing; a move back to where a replica is gives the move up",
        ]
        refused = None
        if not wanted:
            refused = f"{source.path} holds nothing to move"
        elif source.path == target.path:
            refused = f"{target.path} is where they are"
        elif source.state not in USABLE or target.state not in USABLE:
            bad = source if source.state not in USABLE else target
            refused = f"{bad.path} is {bad.state}: {why(bad)}"
        elif room is not None and size > room:
            refused = f"{bytes_words(size)} do not fit into {bytes_words(room)}"
        words = ["log-dirs", "move", "--broker", str(broker), "--to", target.path]
        listed = [] if not form.get("replicas", "").strip() else [str(tp) for tp in wanted]
        if not listed:
            words += ["--from", source.path]
        return ActPlan(lines=tuple(lines), refused=refused, commands=(command(self._bootstrap, *words, names=listed),))

    async def do(self, client: AdminClient, snapshot: Snapshot, form: Form) -> list[str]:
        broker, _, target, wanted = await self._asked(client, snapshot, form)
        outcomes = await alter_replica_log_dirs(client, broker, dict.fromkeys(wanted, target.path))
        return [f"{tp}: {'begun' if error is None else said(error)}" for tp, error in sorted(outcomes.items())]


class CancelMoves:
    """Moves under way are given up: replicas stay where they are."""

    name, title, verb = "cancel-move", "Give moves up", "Give up"
    ours = False

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def fields(self, snapshot: Snapshot, form: Form) -> list[ActField]:
        hint = "TOPIC-PARTITION, one a line. Empty: every move of the broker."
        return [
            broker_field(snapshot, form),
            ActField(name="replicas", label="Replicas", kind="area", value=form.get("replicas", ""), hint=hint),
        ]

    async def _asked(
        self, client: AdminClient, snapshot: Snapshot, form: Form
    ) -> tuple[BrokerId, dict[TopicPartition, str]]:
        broker = broker_of(snapshot, form)
        moves = {m.tp: m.source for m in (await disks_now(client, snapshot, broker)).moves}
        wanted = replicas_named(form.get("replicas", "")) or list(moves)
        return broker, {tp: moves[tp] for tp in wanted if tp in moves}

    async def plan(self, client: AdminClient, snapshot: Snapshot, form: Form) -> ActPlan:
        broker, wanted = await self._asked(client, snapshot, form)
        by_source: dict[str, list[str]] = {}
        for tp, source in wanted.items():
            by_source.setdefault(source, []).append(str(tp))
        words = ("log-dirs", "move", "--broker", str(broker), "--no-wait", "--to")
        return ActPlan(
            lines=tuple(f"{tp} stays in {source}; its copy is deleted" for tp, source in sorted(wanted.items())),
            refused=None if wanted else f"broker {broker} moves none of these",
            commands=tuple(command(self._bootstrap, *words, path, names=tps) for path, tps in by_source.items()),
        )

    async def do(self, client: AdminClient, snapshot: Snapshot, form: Form) -> list[str]:
        broker, wanted = await self._asked(client, snapshot, form)
        outcomes = await alter_replica_log_dirs(client, broker, wanted)
        return [f"{tp}: {'given up' if error is None else said(error)}" for tp, error in sorted(outcomes.items())]


class HealDirectory:
    """Use a directory again, mended or with an empty disk in its place."""

    name, title, verb = "online", "Use a directory again", "Use it again"
    ours = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def fields(self, snapshot: Snapshot, form: Form) -> list[ActField]:
        return [broker_field(snapshot, form, ours=True), path_field(snapshot, form, "path", "Directory")]

    async def plan(self, client: AdminClient, snapshot: Snapshot, form: Form) -> ActPlan:
        broker = broker_of(snapshot, form, ours=True)
        disk = disk_of(await describe_disks(client, broker), broker, needed(form, "path", "directory"))
        lines = (
            f"broker {broker} tries {disk.path}, recovers the logs that are there, and serves them again",
            f"now it is {disk.state}" + (f": {why(disk)}" if disk.reason else ""),
            "replicas that are not there any more are copied from the other brokers",
        )
        refused = f"{disk.path} is in use" if disk.state == "online" else None
        words = ("log-dirs", "online", "--broker", str(broker))
        return ActPlan(lines=lines, refused=refused, commands=(command(self._bootstrap, *words, names=[disk.path]),))

    async def do(self, client: AdminClient, snapshot: Snapshot, form: Form) -> list[str]:
        broker, path = broker_of(snapshot, form, ours=True), needed(form, "path", "directory")
        disk = disk_of(await change_disk(client, broker, DirAction.ONLINE, path), broker, path)
        return [f"broker {broker}: {disk.path} is {disk.state}, {len(disk.replicas)} replicas"]


class DirectoryOffline:
    """Use a directory no more, as if its disk had failed."""

    name, title, verb = "offline", "Use a directory no more", "Take it out of use"
    ours = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def fields(self, snapshot: Snapshot, form: Form) -> list[ActField]:
        return [broker_field(snapshot, form, ours=True), path_field(snapshot, form, "path", "Directory")]

    async def _last(self, client: AdminClient, broker: BrokerId, disk: DiskView) -> list[TopicPartition]:
        topics = sorted({r.tp.topic for r in disk.replicas})
        return last_copies(broker, disk, await client.metadata(topics)) if topics else []

    async def plan(self, client: AdminClient, snapshot: Snapshot, form: Form) -> ActPlan:
        broker = broker_of(snapshot, form, ours=True)
        disk = disk_of(await describe_disks(client, broker), broker, needed(form, "path", "directory"))
        last = await self._last(client, broker, disk)
        leads = sum(p is not None and p.leader == broker for p in (snapshot.partition(r.tp) for r in disk.replicas))
        lines = (
            f"broker {broker} closes the files of {disk.path}: {len(disk.replicas)} replicas are offline",
            f"{leads} of them lead: other brokers lead those that they have too",
        )
        warnings = (f"the last copy: nobody can read or write {named(last)} while it is offline",) if last else ()
        words = ["log-dirs", "offline", "--broker", str(broker), *(["--force"] if last else [])]
        return ActPlan(
            lines=lines,
            warnings=warnings,
            confirm=disk.path if last else None,
            refused=f"{disk.path} is offline already" if disk.state == "offline" else None,
            commands=(command(self._bootstrap, *words, names=[disk.path]),),
        )

    async def do(self, client: AdminClient, snapshot: Snapshot, form: Form) -> list[str]:
        broker, path = broker_of(snapshot, form, ours=True), needed(form, "path", "directory")
        disk = disk_of(await describe_disks(client, broker), broker, path)
        last = await self._last(client, broker, disk)
        if last and form.get("confirm") != disk.path:
            raise ActRefused(f"{disk.path} has the last copy of {named(last)} by now: look at the plan again")
        after = await change_disk(client, broker, DirAction.OFFLINE, path, force=bool(last))
        return [f"broker {broker}: {path} is {disk_of(after, broker, path).state}"]


class CordonDirectory:
    """Whether a directory takes new replicas (KIP-1066)."""

    ours = True

    def __init__(self, bootstrap: str, *, on: bool) -> None:
        self._bootstrap, self._on = bootstrap, on
        self.name = "cordon" if on else "uncordon"
        self.title = "Place no new replicas in a directory" if on else "Place new replicas in a directory again"
        self.verb = "Cordon" if on else "Uncordon"

    def fields(self, snapshot: Snapshot, form: Form) -> list[ActField]:
        return [broker_field(snapshot, form, ours=True), path_field(snapshot, form, "path", "Directory")]

    async def plan(self, client: AdminClient, snapshot: Snapshot, form: Form) -> ActPlan:
        broker = broker_of(snapshot, form, ours=True)
        view = await describe_disks(client, broker)
        disk = disk_of(view, broker, needed(form, "path", "directory"))
        held = sum(not r.future for r in disk.replicas)
        after = (
            f"takes no new replicas; the {held} that it holds are served as before"
            if self._on
            else "takes new replicas"
        )
        alone = self._on and all(d.cordoned or d is disk for d in view.disks)
        warnings = (f"then broker {broker} takes no new replicas at all: every directory is cordoned",) if alone else ()
        refused = f"{disk.path} is {'' if disk.cordoned else 'not '}cordoned" if disk.cordoned is self._on else None
        words = ("log-dirs", self.name, "--broker", str(broker))
        return ActPlan(
            lines=(f"{disk.path} of broker {broker} {after}",),
            warnings=warnings,
            refused=refused,
            commands=(command(self._bootstrap, *words, names=[disk.path]),),
        )

    async def do(self, client: AdminClient, snapshot: Snapshot, form: Form) -> list[str]:
        broker = broker_of(snapshot, form, ours=True)
        disks = await describe_disks(client, broker)
        disk = disk_of(disks, broker, needed(form, "path", "directory"))
        await cordon(client, broker, await self._wanted(client, broker, disks.disks, disk))
        return [f"broker {broker}: {disk.path} is {'' if self._on else 'not '}cordoned"]

    async def _wanted(
        self, client: AdminClient, broker: BrokerId, disks: Iterable[DiskView], disk: DiskView
    ) -> list[str]:
        if self._on and ALL_DIRS in cordoned_entries((await cordon_config(client, broker)).value):
            return [ALL_DIRS]
        return [d.path for d in disks if (self._on if d is disk else d.cordoned)]


class ThrottleMoves:
    """How much brokers copy between their directories, at most."""

    name, title, verb = "throttle", "Limit moves between directories", "Set the limit"
    ours = False

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def fields(self, snapshot: Snapshot, form: Form) -> list[ActField]:
        every = (("", "all brokers"), *((str(b), f"broker {b}") for b in sorted(snapshot.alive)))
        hint = "Bytes a second of each broker. Empty: no limit of its own."
        return [
            ActField(name="broker", label="Broker", kind="choice", choices=every, value=form.get("broker", "")),
            ActField(name="rate", label="Bytes a second", kind="number", value=form.get("rate", ""), hint=hint),
        ]

    def _asked(self, snapshot: Snapshot, form: Form) -> tuple[list[BrokerId], int | None]:
        brokers = [broker_of(snapshot, form)] if form.get("broker") else sorted(snapshot.alive)
        return brokers, number(form, "rate", "limit", low=1, high=2**62) if form.get("rate", "").strip() else None

    async def plan(self, client: AdminClient, snapshot: Snapshot, form: Form) -> ActPlan:
        brokers, rate = self._asked(snapshot, form)
        lines, commands = [], []
        for broker in brokers:
            now = (await broker_values(client, broker, (MOVE_THROTTLE,))).get(MOVE_THROTTLE)
            after = "the limit of its own is taken away" if rate is None else f"then {bytes_words(rate)}/s"
            lines.append(f"broker {broker}: {MOVE_THROTTLE} is {now}, {after}")
            what = ("unset",) if rate is None else ("set",)
            key = MOVE_THROTTLE if rate is None else f"{MOVE_THROTTLE}={rate}"
            commands.append(command(self._bootstrap, "configs", *what, "--broker", str(broker), names=[key]))
        return ActPlan(lines=tuple(lines), commands=tuple(commands))

    async def do(self, client: AdminClient, snapshot: Snapshot, form: Form) -> list[str]:
        brokers, rate = self._asked(snapshot, form)
        if rate is None:
            for broker in brokers:
                await set_configs(client, BROKER_RESOURCE, {str(broker): {MOVE_THROTTLE: None}})
        else:
            await throttle_moves(client, brokers, rate)
        return [f"broker {broker}: {'no limit' if rate is None else f'{bytes_words(rate)}/s'}" for broker in brokers]
