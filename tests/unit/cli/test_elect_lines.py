"""Kafka's lines for elections by hand, and what an unclean one may lose."""

import json
import pathlib

from holdfast.cli.elect import failure_lines, loss_line, outcome_lines
from holdfast.cli.local_cluster import leaderless_line
from holdfast.client.views import PartitionMetadata
from holdfast.model.errors import ElectionNotNeededError, HoldfastError, UnknownTopicOrPartitionError
from holdfast.model.types import TopicPartition

GOLDEN = pathlib.Path(__file__).parents[2] / "golden/cli/4.3.0/kafka-leader-election.json"


def recorded(*options: str) -> list[str]:
    """Standard output of Kafka's tool for these options, with or without a note."""
    records = json.loads(GOLDEN.read_text())
    return [r["stdout"] for r in records if r["command"][3:] == ["--election-type", *options]]


def test_A2_lines_of_an_election_are_kafkas() -> None:
    t2 = TopicPartition("t2", 1)
    noop, elected = recorded("preferred", "--topic", "t2", "--partition", "1")
    assert outcome_lines("PREFERRED", {t2: ElectionNotNeededError("x")}) == (noop.splitlines(), {})
    assert outcome_lines("PREFERRED", {t2: None}) == (elected.splitlines(), {})
    (refused,) = recorded("preferred", "--topic", "nosuch", "--partition", "0")
    error = UnknownTopicOrPartitionError("No such topic as nosuch")
    nosuch: dict[TopicPartition, HoldfastError] = {TopicPartition("nosuch", 0): error}
    assert outcome_lines("PREFERRED", dict(nosuch)) == ([], nosuch)
    assert failure_lines("PREFERRED", nosuch) == refused.splitlines()
    assert outcome_lines("UNCLEAN", {}) == ([], {})


def partition(isr: tuple[int, ...], offline: tuple[int, ...]) -> PartitionMetadata:
    return PartitionMetadata(partition=0, leader=None, leader_epoch=1, replicas=(1, 2, 3), isr=isr, offline=offline)


def test_A2_what_an_unclean_election_may_lose_is_said() -> None:
    tp = TopicPartition("t", 0)
    assert loss_line(tp, partition((1,), (1,))) == (
        "t-0 has no leader; broker 1 had everything and is away: what only 1 has is lost. Alive: 2, 3"
    )
    assert loss_line(tp, partition((), ())) == (
        "t-0 has no leader; no replica is known to have everything: what none of the live ones has is lost."
        " Alive: 1, 2, 3"
    )
    assert loss_line(tp, partition((1,), (1, 2, 3))) == (
        "t-0 has no leader, and none of its replicas is alive (1, 2, 3): nobody to elect"
    )


def test_A2_the_line_about_partitions_without_a_leader_names_some_of_them() -> None:
    many = [TopicPartition("t", n) for n in range(7)]
    assert leaderless_line(many).startswith("no leader: t-0, t-1, t-2, t-3, t-4 and 2 more. `holdfast topics describe")
    assert leaderless_line(many[:1]).startswith("no leader: t-0. `holdfast")
