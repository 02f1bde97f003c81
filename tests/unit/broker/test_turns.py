"""When what a heartbeat carries of replicas counts as told (house.md D14)."""

from holdfast.broker.turns import TurnsToTell
from holdfast.model.fates import ReplicaTurn
from holdfast.model.types import TopicPartition

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
FAILED, STRAINED, RELIEVED = ReplicaTurn.FAILED, ReplicaTurn.STRAINED, ReplicaTurn.RELIEVED


def test_D14_a_turn_is_carried_until_a_heartbeat_with_it_is_answered() -> None:
    turns = TurnsToTell()
    turns[TP] = RELIEVED
    assert turns.carried() == {TP: RELIEVED}  # this heartbeat is lost
    assert turns.carried() == {TP: RELIEVED}
    assert turns.told(TP, RELIEVED)
    assert turns.carried() == {}
    assert not turns.told(TP, RELIEVED)


def test_D14_what_was_set_since_the_heartbeat_was_made_is_not_told_by_its_answer() -> None:
    turns = TurnsToTell()
    turns.update({TP: STRAINED, OTHER: FAILED})
    carried = turns.carried()
    turns[TP] = RELIEVED
    turns[TP] = STRAINED  # a new controller has to hear it, perhaps: the heartbeat was the old one's
    assert [turns.told(tp, turn) for tp, turn in carried.items()] == [False, True]
    assert turns.carried() == {TP: STRAINED}
    assert turns.told(TP, STRAINED)
    assert not turns


def test_D14_a_newer_turn_takes_the_place_of_an_older_one() -> None:
    turns = TurnsToTell()
    turns[TP] = STRAINED
    turns.carried()
    turns[TP] = RELIEVED
    assert not turns.told(TP, STRAINED)
    assert turns.carried() == {TP: RELIEVED}
    turns.setdefault(TP, FAILED)
    assert turns.get(TP) is RELIEVED
    del turns[TP]
    assert len(turns) == 0
