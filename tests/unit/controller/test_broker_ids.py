"""Brokers without ids, as the controller sees them: claims, registrations, what a person changes."""

import random
from typing import Any
from uuid import UUID

import pytest

from holdfast.controller import events
from holdfast.controller.controller import Controller
from holdfast.controller.settings import ControllerSettings
from holdfast.metadata import host_records
from holdfast.metadata.broker_ids import Applicant, Awaited, HostEntry, SeveralMissing, Step, Taken
from holdfast.metadata.image import ClusterImage
from holdfast.model.errors import DuplicateBrokerRegistrationError, InvalidRequestError, ResourceNotFoundError
from holdfast.model.listeners import Endpoints


class Cluster:
    """A controller whose decisions are all recorded."""

    def __init__(self) -> None:
        self.controller = Controller(ClusterImage.empty("c"), ControllerSettings(), random.Random(1))
        self.controller.begin(0)
        self.now_ms = 0
        self.starts = 0

    @property
    def hosts(self) -> dict[str, HostEntry]:
        return host_records.hosts(self.controller.image)

    @property
    def sequence(self) -> int:
        return host_records.sequence(self.controller.image)

    def say(self, event: events.Event) -> Any:
        decision = self.controller.handle(event, self.now_ms)
        if decision.records:
            self.controller.replay(decision.records, self.controller.image.next_offset)
        return decision.reply

    def claim(self, host: str, claimant: int, **others: Any) -> Any:
        answering = others.pop("answering", frozenset())
        who = Applicant(host=host, claimant=UUID(int=claimant), **others)
        return self.say(events.ClaimBrokerId(applicant=who, answering=answering))

    def register(self, broker_id: int, host: str | None = None, port: int | None = None) -> Any:
        self.starts += 1
        return self.say(
            events.BrokerRegister(
                broker_id=broker_id, incarnation_id=UUID(int=1000 + self.starts), host=host,
                endpoints=Endpoints.one("h", 9000 + broker_id if port is None else port),
            )
        )  # fmt: skip

    def join(self, broker_id: int, host: str | None = None) -> None:
        epoch = self.register(broker_id, host).broker_epoch
        self.say(events.BrokerHeartbeat(broker_id=broker_id, broker_epoch=epoch))

    def die(self, broker_id: int) -> None:
        epoch = self.controller.image.brokers[broker_id].epoch
        self.say(events.BrokerConnectionLost(broker_id=broker_id, broker_epoch=epoch, refused=True))

    def create(self, topic: str, *replicas: int) -> None:
        wanted = events.TopicToCreate(name=topic, assignments=((0, replicas),))
        (result,) = self.say(events.CreateTopics(topics=(wanted,))).topics
        assert result.error is None


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_K426_08_the_first_brokers_get_new_ids(cluster: Cluster) -> None:
    assert [cluster.claim(host, n).broker_id for n, host in enumerate("abc")] == [1001, 1002, 1003]
    assert cluster.sequence == 3


def test_K426_04_a_host_gets_its_id_again(cluster: Cluster) -> None:
    assert cluster.claim("a", 1).broker_id == 1001
    cluster.join(1001, "a")
    cluster.die(1001)
    assert cluster.claim("a", 2) == Taken(broker_id=1001, step=Step.HOST)
    assert cluster.sequence == 1


def test_K426_05_an_id_that_is_alive_is_not_given_again(cluster: Cluster) -> None:
    cluster.join(7, "a")
    assert cluster.claim("a", 1) == Taken(broker_id=1001, step=Step.NEW, sequence=1)
    cluster.join(1001, "a")
    assert cluster.hosts == {"a": HostEntry(broker_id=1001)}


def test_an_id_is_not_given_away_while_its_broker_starts(cluster: Cluster) -> None:
    """It has registered and sent no heartbeat; its port is served."""
    cluster.register(7, "a")
    assert cluster.claim("a", 1, answering=frozenset({7})) == Taken(broker_id=1001, step=Step.NEW, sequence=1)


def test_K426_06_the_only_missing_id_is_taken(cluster: Cluster) -> None:
    for broker_id in (1, 2, 3):
        cluster.join(broker_id)
    cluster.create("t", 1, 2, 3)
    cluster.die(2)
    assert cluster.claim("renamed", 1) == Taken(broker_id=1001, step=Step.NEW, sequence=1)
    assert cluster.claim("another", 2, adopts=True) == Taken(broker_id=2, step=Step.MISSING)


def test_K426_07_several_missing_ids_change_nothing(cluster: Cluster) -> None:
    for broker_id in (1, 2, 3):
        cluster.join(broker_id)
    cluster.create("t", 1, 2, 3)
    cluster.die(2)
    cluster.die(3)
    before = cluster.controller.image
    assert cluster.claim("renamed", 1, adopts=True) == SeveralMissing(missing=(2, 3))
    assert cluster.controller.image == before
    cluster.join(3)
    assert cluster.claim("renamed", 2, adopts=True) == Taken(broker_id=2, step=Step.MISSING)


def test_K426_17_of_two_that_want_the_missing_id_one_gets_it(cluster: Cluster) -> None:
    for broker_id in (1, 2):
        cluster.join(broker_id)
    cluster.create("t", 1, 2)
    cluster.die(2)
    assert cluster.claim("x", 1, adopts=True) == Taken(broker_id=2, step=Step.MISSING)
    assert cluster.claim("y", 2, adopts=True) == Awaited(broker_id=2)
    cluster.register(2, "x", port=9999)
    assert cluster.claim("y", 2, adopts=True) == Awaited(broker_id=2)
    cluster.join(2, "x")
    assert cluster.claim("y", 2, adopts=True) == Taken(broker_id=1001, step=Step.NEW, sequence=1)


def test_K426_03_an_id_of_a_live_broker_is_refused_and_nothing_is_recorded(cluster: Cluster) -> None:
    cluster.join(3, "a")
    before = cluster.controller.image
    reply = cluster.register(3, "b", port=1)
    assert isinstance(reply, DuplicateBrokerRegistrationError)
    assert "Broker id 3 is in use by the live broker" in str(reply)
    assert cluster.controller.image == before


def test_K426_09_every_broker_that_registers_is_remembered_for_its_host(cluster: Cluster) -> None:
    cluster.join(3, "a")
    assert cluster.hosts == {"a": HostEntry(broker_id=3)}


def test_K426_12_a_renamed_host_leaves_nothing_and_hosts_of_dead_brokers_stay(cluster: Cluster) -> None:
    cluster.join(3, "old")
    cluster.join(4, "gone")
    cluster.die(4)
    cluster.join(3, "new")
    assert cluster.hosts == {"new": HostEntry(broker_id=3), "gone": HostEntry(broker_id=4)}


def test_K426_13_a_person_says_which_id_a_host_has(cluster: Cluster) -> None:
    cluster.join(3, "a")
    told = cluster.say(events.ManageBrokerIds(host="new", broker_id=10))
    assert [(each.host, each.broker_id, each.is_awaited, each.is_alive) for each in told.hosts] == [
        ("a", 3, False, True), ("new", 10, False, None),
    ]  # fmt: skip
    assert cluster.claim("new", 1) == Taken(broker_id=10, step=Step.HOST)
    told = cluster.say(events.ManageBrokerIds())
    assert [(each.host, each.is_awaited) for each in told.hosts] == [("a", False), ("new", True)]
    assert [each.host for each in cluster.say(events.ManageBrokerIds(host="new")).hosts] == ["a"]
    assert cluster.claim("new", 2) == Taken(broker_id=1001, step=Step.NEW, sequence=1)


def test_what_a_person_says_wrongly_is_refused(cluster: Cluster) -> None:
    cluster.join(3, "a")
    before = cluster.controller.image
    reply = cluster.say(events.ManageBrokerIds(host="b"))
    assert isinstance(reply, ResourceNotFoundError)
    assert str(reply) == "host b has no broker id: expected one of a"
    for wrong in (events.ManageBrokerIds(host="b", broker_id=-2), events.ManageBrokerIds(host=" b", broker_id=2)):
        assert isinstance(cluster.say(wrong), InvalidRequestError)
    assert isinstance(cluster.claim("", 1), InvalidRequestError)
    assert cluster.controller.image == before


def test_K426_14_a_broker_that_says_no_host_is_taken_as_ever(cluster: Cluster) -> None:
    cluster.join(1, "a")
    cluster.join(2)
    assert cluster.hosts == {"a": HostEntry(broker_id=1)}
    assert not cluster.controller.image.brokers[2].fenced


def test_a_claim_that_came_to_nothing_is_awaited_until_somebody_insists(cluster: Cluster) -> None:
    assert cluster.claim("a", 1).broker_id == 1001
    assert cluster.claim("a", 2) == Awaited(broker_id=1001)
    assert cluster.claim("a", 2, insists=True) == Taken(broker_id=1001, step=Step.HOST)
    cluster.join(1001, "a")
    assert cluster.hosts == {"a": HostEntry(broker_id=1001)}
