"""The judge of consumer groups: each thing that can be wrong, as a history."""

from __future__ import annotations

import pytest

from holdfast.model.types import TopicPartition
from tests.simulation.group_load import Commit, GroupJudge, Register
from tests.simulation.watch import Violation

TP = TopicPartition("t", 0)


def register(*commits: tuple[int, float, float | None]) -> Register:
    return Register("readers, t-0", [Commit(*each) for each in commits])


def test_what_was_acknowledged_last_is_read_and_so_may_be_what_was_under_way() -> None:
    commits = register((3, 1.0, 2.0), (5, 3.0, None), (7, 4.0, 6.0))
    for offset in (3, 5, 7):
        commits.read(offset, 5.0)
    for offset in (5, 7):  # nobody knows when the one without an acknowledgement is taken
        commits.read(offset, 7.0)
    register((3, 1.0, None)).read(None, 5.0)


@pytest.mark.parametrize(
    ("offset", "words"), [(None, "has no offset"), (4, "nobody has committed"), (3, "back at 3, after 7")]
)
def test_what_is_lost_invented_or_gone_back_is_a_violation(offset: int | None, words: str) -> None:
    with pytest.raises(Violation, match=words):
        register((3, 1.0, 2.0), (7, 3.0, 4.0)).read(offset, 5.0)


def test_a_partition_has_one_owner_in_a_generation() -> None:
    judge = GroupJudge()
    judge.owns(1, "a", [TP])
    judge.owns(2, "b", [TP])
    with pytest.raises(Violation, match="belongs to a and to b in generation 1"):
        judge.owns(1, "b", [TP])
