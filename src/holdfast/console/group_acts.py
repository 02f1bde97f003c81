"""Acts on groups: a reset of offsets, of which the plan is the dry run."""

from datetime import UTC, datetime

from holdfast.client.admin import AdminClient
from holdfast.client.group_offsets import commit_resets, plan_reset
from holdfast.client.offset_resets import Form as ResetForm
from holdfast.client.offset_resets import Reset, ShiftBy, ToEarliest, ToLatest, ToOffset, ToTime
from holdfast.console.acts import MOST_LINES, ActField, ActPlan, ActRefused, Form, command, needed, number
from holdfast.console.snapshot import Snapshot
from holdfast.console.words import count_words
from holdfast.model.types import Offset, TopicPartition

FORMS = (
    ("earliest", "where the logs begin"),
    ("latest", "where the logs end"),
    ("offset", "to an offset"),
    ("shift", "so many records further, or back"),
    ("time", "to the first record not older than a time"),
)
TIME_FORM = "YYYY-MM-DDTHH:MM:SS, UTC unless it has a zone"


def time_of_text(text: str) -> int:
    """Milliseconds since 1970. ActRefused."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ActRefused(f"time {text!r}: expected {TIME_FORM}") from None
    return round((found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp() * 1000)


class ResetOffsets:
    """New offsets for a group without members."""

    name, title, verb = "reset-offsets", "Reset offsets of a group", "Reset them"
    ours = False

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def fields(self, snapshot: Snapshot, form: Form) -> list[ActField]:
        hint = f"An offset, a number of records, or a time ({TIME_FORM})."
        topics = "TOPIC or TOPIC:0,1, one a line. Empty: all that it has offsets in."
        return [
            ActField(name="group", label="Group", value=form.get("group", "")),
            ActField(name="to", label="To", kind="choice", choices=FORMS, value=form.get("to", "")),
            ActField(name="value", label="Value", value=form.get("value", ""), hint=hint),
            ActField(name="topics", label="Topics", kind="area", value=form.get("topics", ""), hint=topics),
        ]

    def _form(self, form: Form) -> tuple[ResetForm, list[str]]:
        """What is to become of the offsets, and the options of the command that say so."""
        match form.get("to", "earliest"):
            case "earliest":
                return ToEarliest(), ["--to-earliest"]
            case "latest":
                return ToLatest(), ["--to-latest"]
            case "offset":
                offset = number(form, "value", "offset", high=2**63 - 1)
                return ToOffset(offset), ["--to-offset", str(offset)]
            case "shift":
                by = number(form, "value", "records", low=-(2**62), high=2**62)
                return ShiftBy(by), ["--shift-by", str(by)]
            case "time":
                at_ms = time_of_text(needed(form, "value", "time"))
                text = (
                    datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
                )
                return ToTime(at_ms), ["--to-datetime", text]
        raise ActRefused(f"to {form.get('to')!r}: expected one of {', '.join(name for name, _ in FORMS)}")

    def _partitions(self, snapshot: Snapshot, form: Form) -> tuple[list[TopicPartition] | None, list[str]]:
        """Those that are named, or None, and the options of the command that name them."""
        found: list[TopicPartition] = []
        options: list[str] = []
        for line in filter(None, map(str.strip, form.get("topics", "").splitlines())):
            name, _, numbers = line.partition(":")
            topic = snapshot.view.topics.get(name)
            if topic is None:
                raise ActRefused(f"topic {name!r} does not exist")
            there = [p.partition for p in topic.partitions]
            chosen = [n.strip() for n in numbers.split(",") if n.strip()] or list(map(str, there))
            if any(n not in map(str, there) for n in chosen):
                raise ActRefused(f"{line}: expected partitions from 0 to {len(there) - 1}")
            found += (TopicPartition(name, int(n)) for n in chosen)
            options += ["--topic", line]
        return (found, options) if found else (None, ["--all-topics"])

    async def _resets(self, client: AdminClient, snapshot: Snapshot, form: Form) -> dict[TopicPartition, Reset]:
        partitions, _ = self._partitions(snapshot, form)
        return await plan_reset(client, needed(form, "group", "group"), self._form(form)[0], partitions)

    async def plan(self, client: AdminClient, snapshot: Snapshot, form: Form) -> ActPlan:
        group = needed(form, "group", "group")
        found = await self._resets(client, snapshot, form)
        now = {tp: at.offset for tp, at in (await client.committed(group)).items()}
        back = sum(max(0, now[tp] - each.offset) for tp, each in found.items() if tp in now)
        on = sum(max(0, each.offset - now[tp]) for tp, each in found.items() if tp in now)
        lines = [f"{len(found)} partitions of group {group} get new offsets"]
        if back:
            lines.append(f"{count_words(back)} records are read again")
        if on:
            lines.append(f"{count_words(on)} records are passed over")
        words = ["groups", "reset-offsets", "--group", group, *self._form(form)[1]]
        words += [*self._partitions(snapshot, form)[1], "--execute"]
        return ActPlan(
            lines=tuple(lines),
            warnings=tuple(each.note for each in found.values() if each.note)[:MOST_LINES],
            columns=("Partition", "Committed", "New", "Difference"),
            rows=tuple(_row(tp, now.get(tp), each) for tp, each in sorted(found.items()))[:MOST_LINES],
            confirm=group,
            commands=(command(self._bootstrap, *words),),
        )

    async def do(self, client: AdminClient, snapshot: Snapshot, form: Form) -> list[str]:
        found = await self._resets(client, snapshot, form)
        await commit_resets(client, needed(form, "group", "group"), found)
        return [f"{tp}: {each.offset}" for tp, each in sorted(found.items())]


def _row(tp: TopicPartition, now: Offset | None, new: Reset) -> tuple[str, ...]:
    difference = "–" if now is None else f"{new.offset - now:+,}"
    return str(tp), count_words(now), count_words(new.offset), difference
