"""Acts on the replicas of a partition: other brokers for it, and a reassignment taken back."""

import json
import shlex

from holdfast.client.admin import AdminClient
from holdfast.client.reassignments import alter_reassignments, list_reassignments
from holdfast.console.acts import ActField, ActPlan, ActRefused, Form, command, needed, said
from holdfast.console.disk_acts import replicas_named
from holdfast.console.rows import bytes_of_leaders
from holdfast.console.snapshot import Snapshot
from holdfast.console.words import bytes_words
from holdfast.model.types import BrokerId, TopicPartition

PLAN_FILE = ("--reassignment-json-file", "/dev/stdin")


def with_plan(line: str, wanted: dict[TopicPartition, tuple[BrokerId, ...]]) -> str:
    """The command, and the file that it reads, as a here-string."""
    partitions = [{"topic": tp.topic, "partition": tp.partition, "replicas": list(b)} for tp, b in wanted.items()]
    return f"{line} <<< {shlex.quote(json.dumps({'version': 1, 'partitions': partitions}))}"


class ReassignReplicas:
    """Partitions get these brokers, in this order."""

    name, title, verb = "reassign", "Move replicas to other brokers", "Move"
    ours = False

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def fields(self, snapshot: Snapshot, form: Form) -> list[ActField]:
        alive = ", ".join(map(str, sorted(snapshot.alive)))
        hint = f"Broker ids, the preferred leader first, like 1,2. Alive: {alive}."
        return [
            ActField(
                name="partitions", label="Partitions", kind="area", value=form.get("partitions", ""),
                hint="TOPIC-PARTITION, one a line.",
            ),
            ActField(name="brokers", label="Brokers", value=form.get("brokers", ""), hint=hint),
        ]  # fmt: skip

    def _asked(self, snapshot: Snapshot, form: Form) -> tuple[list[TopicPartition], tuple[BrokerId, ...]]:
        tps = replicas_named(needed(form, "partitions", "partitions"))
        for tp in tps:
            if snapshot.partition(tp) is None:
                raise ActRefused(f"{tp}: there is no such partition")
        words = needed(form, "brokers", "brokers").replace(",", " ").split()
        if any(not (w.isascii() and w.isdecimal()) or int(w) not in snapshot.alive for w in words):
            alive = ", ".join(map(str, sorted(snapshot.alive)))
            raise ActRefused(f"brokers {' '.join(words)!r}: expected ids of {alive}")
        if len(set(words)) != len(words):
            raise ActRefused(f"brokers {' '.join(words)!r}: expected each once")
        return tps, tuple(map(int, words))

    async def plan(self, client: AdminClient, snapshot: Snapshot, form: Form) -> ActPlan:
        tps, brokers = self._asked(snapshot, form)
        sizes = bytes_of_leaders(snapshot)
        lines, copied = [], 0
        for tp in tps:
            p = snapshot.partition(tp)
            assert p is not None
            new = [b for b in brokers if b not in p.replicas]
            copied += len(new) * (0 if p.leader is None else sizes.get((tp, p.leader), 0))
            lines.append(f"{tp}: brokers {', '.join(map(str, p.replicas))} become {', '.join(map(str, brokers))}")
        lines.append(f"{bytes_words(copied)} to copy; replicas that go are deleted when the new ones are in sync")
        line = command(self._bootstrap, "reassign", "execute", *PLAN_FILE)
        return ActPlan(lines=tuple(lines), commands=(with_plan(line, dict.fromkeys(tps, brokers)),))

    async def do(self, client: AdminClient, snapshot: Snapshot, form: Form) -> list[str]:
        tps, brokers = self._asked(snapshot, form)
        outcomes = await alter_reassignments(client, dict.fromkeys(tps, brokers))
        return [f"{tp}: {'begun' if error is None else said(error)}" for tp, error in sorted(outcomes.items())]


class CancelReassignment:
    """Partitions get the replicas back that they had."""

    name, title, verb = "cancel-reassignment", "Take reassignments back", "Take back"
    ours = False

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def fields(self, snapshot: Snapshot, form: Form) -> list[ActField]:
        hint = "TOPIC-PARTITION, one a line. Empty: all that are under way."
        value = form.get("partitions", "")
        return [ActField(name="partitions", label="Partitions", kind="area", value=value, hint=hint)]

    async def _asked(self, client: AdminClient, form: Form) -> dict[TopicPartition, tuple[BrokerId, ...]]:
        named = replicas_named(form.get("partitions", ""))
        found = await list_reassignments(client, named or None)
        return {tp: each.replicas for tp, each in sorted(found.items())}

    async def plan(self, client: AdminClient, snapshot: Snapshot, form: Form) -> ActPlan:
        wanted = await self._asked(client, form)
        line = command(self._bootstrap, "reassign", "cancel", *PLAN_FILE)
        return ActPlan(
            lines=tuple(f"{tp}: the new replicas are deleted, the old ones stay" for tp in wanted),
            refused=None if wanted else "none of these is being reassigned",
            commands=(with_plan(line, wanted),) if wanted else (),
        )

    async def do(self, client: AdminClient, snapshot: Snapshot, form: Form) -> list[str]:
        outcomes = await alter_reassignments(client, dict.fromkeys(await self._asked(client, form)))
        return [f"{tp}: {'taken back' if error is None else said(error)}" for tp, error in sorted(outcomes.items())]
