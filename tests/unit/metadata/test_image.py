"""ClusterImage: what each record does to it, what the delta says, what a broken log does."""

from __future__ import annotations

from uuid import UUID

import pytest

from holdfast.metadata import records as rec
from holdfast.metadata.image import ClusterDelta, ClusterImage
from holdfast.model.errors import MetadataError
from holdfast.model.listeners import Endpoint, Endpoints
from holdfast.security.acls import AclBinding, AclEntry, AclFilter, ResourcePattern
from holdfast.security.resources import Operation, Permission, ResourceKind

T, U = UUID(int=1), UUID(int=2)
ACL = AclBinding(ResourcePattern(ResourceKind.TOPIC, "t"), AclEntry("User:a", "*", Operation.READ, Permission.ALLOW))
OTHER_ACL = AclBinding(ACL.resource, AclEntry("User:a", "*", Operation.WRITE, Permission.ALLOW))
DIR = UUID(int=9)


def broker(broker_id: int, epoch: int, **options: object) -> rec.RegisterBrokerRecord:
    return rec.RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=UUID(int=broker_id),
        broker_epoch=epoch,
        endpoints=(Endpoint(name="PLAINTEXT", host=f"host-{broker_id}", port=9000 + broker_id),),
        **options,  # type: ignore[arg-type]
    )


BASE: tuple[rec.MetadataRecord, ...] = (
    rec.ControllerClaimRecord(controller_epoch=1, broker_id=1, host="h", port=1),
    broker(1, 1),
    broker(2, 2, rack="r", log_dirs=(DIR,)),
    rec.TopicRecord(name="t", topic_id=T),
    rec.PartitionRecord(partition=0, topic_id=T, replicas=(1, 2), isr=(1, 2), leader=1),
    rec.PartitionRecord(partition=1, topic_id=T, replicas=(2, 1), isr=(2, 1), leader=2),
    rec.ConfigRecord(resource_type=2, resource_name="t", name="k", value="v"),
)


@pytest.fixture
def image() -> ClusterImage:
    return ClusterImage.empty("c").apply(BASE, 0)[0]


def after(image: ClusterImage, *records: rec.MetadataRecord) -> tuple[ClusterImage, ClusterDelta]:
    return image.apply(records, image.next_offset)


def test_an_image_is_what_its_records_say(image: ClusterImage) -> None:
    assert image.offset == 6
    assert (image.controller_id, image.controller_epoch) == (1, 1)
    assert image.brokers[2].rack == "r"
    assert image.brokers[2].fenced
    assert image.topic_names[T] == "t"
    assert dict(image.topic_configs("t")) == {"k": "v"}
    assert dict(image.topic_configs("nosuch")) == {}
    assert image.partition("t", 1) is not None
    assert image.partition("t", 2) is None
    assert image.partition("nosuch", 0) is None
    assert ClusterImage.empty("c").next_offset == 0


def test_the_old_image_stays(image: ClusterImage) -> None:
    topics = image.topics
    new, delta = after(image, rec.PartitionChangeRecord(partition=0, topic_id=T, leader=2, isr=(2,)))
    assert image.topics is topics
    assert image.topics["t"].partitions[0].leader == 1
    assert delta.before is image
    assert new.topics["t"].partitions[1] is image.topics["t"].partitions[1]


def test_a_change_of_leader_raises_both_epochs_any_other_one(image: ClusterImage) -> None:
    new, delta = after(
        image,
        rec.PartitionChangeRecord(partition=0, topic_id=T, isr=(1,)),
        rec.PartitionChangeRecord(partition=1, topic_id=T, leader=None),
    )
    first, second = new.topics["t"].partitions[0], new.topics["t"].partitions[1]
    assert (first.leader, first.leader_epoch, first.partition_epoch, first.isr) == (1, 0, 1, (1,))
    assert (second.leader, second.leader_epoch, second.partition_epoch, second.isr) == (None, 1, 1, (2, 1))
    assert delta.changed_topics == {"t": frozenset({0, 1})}
    again, _ = after(new, rec.PartitionChangeRecord(partition=0, topic_id=T, leader=1))
    assert again.topics["t"].partitions[0].leader_epoch == 1


def test_every_field_of_a_partition_can_change(image: ClusterImage) -> None:
    new, _ = after(
        image,
        rec.PartitionChangeRecord(
            partition=0,
            topic_id=T,
            replicas=(2, 3),
            adding=(3,),
            removing=(1,),
            directories=(DIR, DIR),
            elr=(2,),
            last_known_elr=(3,),
            recovery_state=rec.RecoveryState.RECOVERING,
        ),
    )
    p = new.topics["t"].partitions[0]
    assert (p.replicas, p.adding, p.removing, p.directories) == ((2, 3), (3,), (1,), (DIR, DIR))
    assert (p.elr, p.last_known_elr, p.recovery_state) == ((2,), (3,), rec.RecoveryState.RECOVERING)
    same, _ = after(new, rec.PartitionChangeRecord(partition=0, topic_id=T))
    assert same.topics["t"].partitions[0].replicas == (2, 3)
    assert same.topics["t"].partitions[0].partition_epoch == 2


def test_brokers_change_and_go(image: ClusterImage) -> None:
    new, delta = after(
        image,
        rec.BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=2, fenced=False),
        rec.BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=2, cordoned=(DIR,)),
        rec.UnregisterBrokerRecord(broker_id=1, broker_epoch=1),
    )
    assert delta.changed_brokers == {1, 2}
    assert 1 not in new.brokers
    two = new.brokers[2]
    assert two.may_lead
    assert (two.cordoned, image.brokers[2].cordoned) == ((DIR,), ())
    draining, _ = after(
        new,
        rec.BrokerRegistrationChangeRecord(
            broker_id=2, broker_epoch=2, in_controlled_shutdown=True, log_dirs=(), cordoned=()
        ),
    )
    assert not draining.brokers[2].may_lead
    assert (draining.brokers[2].cordoned, draining.brokers[2].log_dirs) == ((), ())


def test_H_24_a_topic_made_again_is_another_topic(image: ClusterImage) -> None:
    new, delta = after(
        image,
        rec.RemoveTopicRecord(topic_id=T),
        rec.TopicRecord(name="t", topic_id=U),
        rec.PartitionRecord(partition=0, topic_id=U, replicas=(1,), isr=(1,), leader=1),
    )
    assert new.topics["t"].topic_id == U
    assert len(new.topics["t"].partitions) == 1
    assert dict(new.topic_configs("t")) == {}
    assert T not in new.topic_names
    assert delta.deleted_topics == {T: image.topics["t"]}
    assert delta.changed_topics == {"t": frozenset({0})}
    assert delta.changed_configs == {(2, "t")}


def test_what_came_and_went_in_one_batch_is_no_news(image: ClusterImage) -> None:
    new, delta = after(
        image, rec.TopicRecord(name="u", topic_id=U), rec.RemoveTopicRecord(topic_id=U), rec.NoOpRecord()
    )
    assert new.topics == image.topics
    assert delta.empty


def test_configs_features_and_producer_ids(image: ClusterImage) -> None:
    new, delta = after(
        image,
        rec.ConfigRecord(resource_type=4, resource_name="", name="a", value="1"),
        rec.ConfigRecord(resource_type=4, resource_name="1", name="b", value="2"),
        rec.ConfigRecord(resource_type=2, resource_name="t", name="k", value=None),
        rec.ConfigRecord(resource_type=2, resource_name="t", name="nosuch", value=None),
        rec.FeatureLevelRecord(name="f", level=3),
        rec.FeatureLevelRecord(name="g", level=0),
        rec.ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=1000),
    )
    assert dict(new.broker_configs(None)) == {"a": "1"}
    assert dict(new.broker_configs(1)) == {"b": "2"}
    assert (2, "t") not in new.configs
    assert delta.changed_configs == {(4, ""), (4, "1"), (2, "t")}
    assert dict(new.features) == {"f": 3}
    assert new.next_producer_id == 1000
    gone, _ = after(new, rec.FeatureLevelRecord(name="f", level=0))
    assert dict(gone.features) == {}


def test_access_control_entries(image: ClusterImage) -> None:
    added, delta = after(image, *(rec.AccessControlEntryRecord(id=acl.id(), acl=acl) for acl in (ACL, OTHER_ACL)))
    assert set(added.acls) == delta.changed_acls == {ACL, OTHER_ACL}
    assert not delta.empty
    assert ACL in added.acls
    assert len(added.acls) == 2
    assert list(added.acls.matching(AclFilter(operation=Operation.WRITE))) == [OTHER_ACL]
    again, _ = ClusterImage.empty("c").apply(records := list(added.to_records()), added.next_offset - len(records))
    assert again == added
    gone, delta = after(added, rec.RemoveAccessControlEntryRecord(id=ACL.id()))
    assert set(gone.acls) == {OTHER_ACL}
    assert delta.changed_acls == {ACL}
    none, _ = after(gone, rec.RemoveAccessControlEntryRecord(id=OTHER_ACL.id()))
    assert none.acls == image.acls


def test_two_ids_never_name_one_access_control_entry(image: ClusterImage) -> None:
    """Another controller may give an entry an id of its own."""
    twice, _ = after(
        image,
        rec.AccessControlEntryRecord(id=T, acl=ACL),
        rec.AccessControlEntryRecord(id=U, acl=ACL),
        rec.AccessControlEntryRecord(id=T, acl=OTHER_ACL),
    )
    assert (twice.acls.id_of(ACL), twice.acls.id_of(OTHER_ACL)) == (U, T)
    again, _ = after(twice, rec.AccessControlEntryRecord(id=T, acl=ACL))
    assert (again.acls.id_of(ACL), again.acls.id_of(OTHER_ACL), len(again.acls)) == (T, None, 1)


def test_a_claim_is_told(image: ClusterImage) -> None:
    new, delta = after(image, rec.ControllerClaimRecord(controller_epoch=5, broker_id=2, host="h", port=1))
    assert delta.controller_changed
    assert not delta.empty
    assert (new.controller_id, new.controller_epoch) == (2, 5)


def test_a_snapshot_is_the_image(image: ClusterImage) -> None:
    full, _ = after(
        image,
        rec.FeatureLevelRecord(name="f", level=3),
        rec.ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=1000),
        rec.PartitionChangeRecord(
            partition=0, topic_id=T, leader=None, elr=(2,), recovery_state=rec.RecoveryState.RECOVERING
        ),
    )
    records = list(full.to_records())
    assert full.offset is not None
    again, _ = ClusterImage.empty("c").apply(records, full.next_offset - len(records))
    assert again == full
    assert list(ClusterImage.empty("c").to_records()) == []


@pytest.mark.parametrize(
    "record",
    [
        rec.UnregisterBrokerRecord(broker_id=7, broker_epoch=1),
        rec.BrokerRegistrationChangeRecord(broker_id=7, broker_epoch=1),
        rec.TopicRecord(name="t", topic_id=U),
        rec.RemoveTopicRecord(topic_id=U),
        rec.PartitionRecord(partition=0, topic_id=U, replicas=(1,), isr=(1,), leader=1),
        rec.PartitionChangeRecord(partition=7, topic_id=T),
        rec.RemoveAccessControlEntryRecord(id=U),
        rec.ControllerClaimRecord(controller_epoch=0, broker_id=1, host="h", port=1),
        rec.RegisterBrokerRecord(broker_id=1, incarnation_id=T, broker_epoch=1, endpoints=()),
    ],
)
def test_a_record_that_cannot_be_applied_is_a_broken_log(image: ClusterImage, record: rec.MetadataRecord) -> None:
    with pytest.raises(MetadataError):
        after(image, record)


def test_a_broker_has_all_its_listeners_also_after_a_snapshot(image: ClusterImage) -> None:
    listeners = (Endpoint(name="CLIENTS", host="h", port=1), Endpoint(name="BROKERS", host="i", port=2))
    image, _ = after(image, registration(listeners, "BROKERS", None))
    wanted = Endpoints.of(listeners, "BROKERS")
    assert image.brokers[3].endpoints == wanted
    assert image.brokers[1].endpoints == Endpoints.one("host-1", 9001), "of one listener: for all"
    again = ClusterImage.empty("c").apply(image.to_records(), 0)[0]
    assert again.brokers == image.brokers


@pytest.mark.parametrize(("inter_broker", "control_plane"), [("OTHER", None), (None, "OTHER")])
def test_a_registration_must_have_the_listeners_that_it_names(
    image: ClusterImage, inter_broker: str | None, control_plane: str | None
) -> None:
    with pytest.raises(MetadataError, match=r"Registration of broker 3: .* expected one of CLIENTS"):
        after(image, registration((Endpoint(name="CLIENTS", host="h", port=1),), inter_broker, control_plane))


def registration(
    listeners: tuple[Endpoint, ...], inter_broker: str | None, control_plane: str | None
) -> rec.RegisterBrokerRecord:
    return rec.RegisterBrokerRecord(
        broker_id=3, incarnation_id=UUID(int=3), broker_epoch=7, endpoints=listeners, inter_broker=inter_broker,
        control_plane=control_plane,
    )  # fmt: skip
