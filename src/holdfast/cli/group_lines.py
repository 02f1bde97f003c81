"""Consumer groups as lines of text, the way kafka-consumer-groups.sh prints them. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from holdfast.client.views import CommittedOffset, GroupListing, GroupMember, GroupView
from holdfast.model.types import Offset, TopicPartition

NARROW = 15
ABSENT = "-"


def list_lines(groups: Iterable[GroupListing], *, state: bool) -> Iterator[str]:
    if not state:
        yield from (group.group_id for group in groups)
        return
    yield _row([("GROUP", 25), ("STATE", 20)])
    for group in groups:
        yield _row([(group.group_id, 25), (group.state, 20)])


def offset_lines(
    view: GroupView,
    committed: Mapping[TopicPartition, CommittedOffset],
    ends: Mapping[TopicPartition, Offset],
) -> Iterator[str]:
    """The table of ``describe``: assigned partitions by member, then what is committed and nobody reads."""
    members = sorted(view.members, key=lambda m: -len(m.assignment))
    rows: list[tuple[TopicPartition, GroupMember | None]] = [(tp, m) for m in members for tp in m.assignment]
    assigned = {tp for tp, _ in rows}
    rows += [(tp, None) for tp in sorted(committed) if tp not in assigned]
    group_width = _width([view.group_id])
    topic_width = _width(tp.topic for tp, _ in rows)
    id_width = _width(m.member_id for _, m in rows if m is not None)
    host_width = _width(m.host for _, m in rows if m is not None)

    def line(cells: Sequence[str]) -> str:
        widths = [group_width, topic_width, 10, NARROW, NARROW, NARROW, id_width, host_width, 0]
        return _row(list(zip(cells, widths, strict=True)))

    yield ""
    yield line(
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"]
    )
    for tp, member in rows:
        position, end = committed.get(tp), ends.get(tp)
        lag = None if position is None or end is None else end - position.offset
        yield line(
            [
                view.group_id,
                tp.topic,
                str(tp.partition),
                _or_absent(None if position is None else position.offset),
                _or_absent(end),
                _or_absent(lag),
                _or_absent(member and member.member_id),
                _or_absent(member and member.host),
                _or_absent(member and member.client_id),
            ]
        )


def member_lines(view: GroupView, *, verbose: bool) -> Iterator[str]:
    group_width = _width([view.group_id])
    id_width = _width(m.member_id for m in view.members)
    host_width = _width(m.host for m in view.members)
    client_width = _width(m.client_id for m in view.members)

    def line(cells: Sequence[str], more: Sequence[str]) -> str:
        row = list(zip(cells, [group_width, id_width, host_width, client_width, NARROW], strict=True))
        if verbose:
            row += zip(more, [NARROW, 20, NARROW, 20], strict=True)
        return _row(row)

    yield ""
    yield line(
        ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"],
        ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"],
    )
    for m in sorted(view.members, key=lambda m: -len(m.assignment)):
        yield line(
            [view.group_id, m.member_id, m.host, m.client_id, str(len(m.assignment))],
            [ABSENT, _assignment(m.assignment), ABSENT, ABSENT],
        )


def state_lines(view: GroupView) -> Iterator[str]:
    group_width = _width([view.group_id])
    coordinator = f"{view.coordinator.address}  ({view.coordinator.broker_id})"
    place_width = max(25, len(coordinator))

    def line(*cells: str) -> str:
        return _row(list(zip(cells, [group_width, place_width, 20, 20, 0], strict=True)))

    yield ""
    yield line("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
    yield line(view.group_id, coordinator, view.protocol, view.state, str(len(view.members)))


def _row(cells: Sequence[tuple[str, int]]) -> str:
    return " ".join(text.ljust(width) for text, width in cells)


def _width(texts: Iterable[str]) -> int:
    return max(NARROW, *map(len, texts), 0)


def _or_absent(value: object) -> str:
    return ABSENT if value is None else str(value)


def _assignment(tps: Iterable[TopicPartition]) -> str:
    """``t1:0;t2:0,1``."""
    by_topic: dict[str, list[str]] = {}
    for tp in sorted(tps):
        by_topic.setdefault(tp.topic, []).append(str(tp.partition))
    return ";".join(f"{topic}:{','.join(partitions)}" for topic, partitions in by_topic.items()) or ABSENT
