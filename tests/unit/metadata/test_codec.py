"""Metadata records as bytes: the recording of Apache Kafka 4.3.0, every field there and back, broken bytes."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.metadata import records as rec
from holdfast.metadata.codec import decode_record, encode_record
from holdfast.metadata.image import ClusterImage
from holdfast.model.errors import CorruptRecordError
from holdfast.model.listeners import Endpoint, SecurityProtocol
from holdfast.records.record import decode_batches
from holdfast.security.acls import AclBinding, AclEntry, ResourcePattern, is_entry
from holdfast.security.quota_entities import entity_of
from holdfast.security.resources import Operation, PatternKind, Permission, ResourceKind
from holdfast.security.scram_credential import ScramCredential, ScramMechanism

GOLDEN = Path(__file__).parents[2] / "golden" / "disk" / "4.3.0" / "__cluster_metadata-0.json"
FOREIGN_KEYS = (27, 28)
"""RegisterControllerRecord and AbortTransactionRecord's successor: Kafka's quorum, not ours."""


def recorded_values() -> list[bytes]:
    files = json.loads(GOLDEN.read_text())["files_after_clean_shutdown"]
    log = bytes.fromhex(files["d0/__cluster_metadata-0/00000000000000000000.log"]["hex"])
    return [bytes(record.value or b"") for record in decode_batches(log)]


def test_every_recorded_record_is_read_and_written_back_byte_for_byte() -> None:
    values = [value for value in recorded_values() if value[1] not in FOREIGN_KEYS]
    assert len(values) > 150
    kinds = set()
    for value in values:
        record = decode_record(value)
        kinds.add(type(record))
        assert encode_record(record) == value
    assert len(kinds) == 12


def test_the_recorded_log_is_an_image() -> None:
    records = [decode_record(value) for value in recorded_values() if value[1] not in FOREIGN_KEYS]
    image, delta = ClusterImage.empty("c").apply(records, 0)
    assert set(image.brokers) == {1}
    broker = image.brokers[1]
    assert broker.fenced  # the recording ends with a clean shutdown
    assert broker.in_controlled_shutdown
    assert len(broker.log_dirs) == 2
    assert dict(image.topic_configs("plain")) == {"retention.ms": "-1"}
    assert image.partition("plain", 0) is not None
    assert image.next_producer_id == 1000
    assert image.features["metadata.version"] == 30
    assert "lat" not in image.topics  # deleted during the recording
    assert not delta.empty


uuids = st.uuids()
ids = st.integers(0, 2**31 - 1)
longs = st.integers(0, 2**63 - 1)
id_lists = st.lists(ids, max_size=20).map(tuple)
uuid_lists = st.lists(uuids, max_size=4).map(tuple)
names = st.text(max_size=200)
states = st.sampled_from(rec.RecoveryState)


def maybe(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | values


endpoints = st.builds(
    Endpoint, name=names, host=names, port=st.integers(0, 65535), security_protocol=st.sampled_from(SecurityProtocol)
)
features = st.tuples(names, st.integers(0, 99), st.integers(0, 99))
acls = st.builds(
    AclBinding,
    st.builds(ResourcePattern, st.sampled_from(ResourceKind), names, st.sampled_from(PatternKind)),
    st.builds(AclEntry, names, names, st.sampled_from(Operation), st.sampled_from(Permission)),
).filter(is_entry)
credentials = st.builds(
    ScramCredential,
    salt=st.binary(max_size=40),
    stored_key=st.binary(max_size=64),
    server_key=st.binary(max_size=64),
    iterations=st.integers(0, 2**31 - 1),
)
quota_names = st.none() | st.text(min_size=1, max_size=20)
entities = (
    st.dictionaries(st.sampled_from(("user", "client-id")), quota_names, min_size=1)
    | st.dictionaries(st.just("ip"), quota_names, min_size=1)
).map(lambda named: entity_of(named.items()))
RECORDS = {
    rec.RegisterBrokerRecord: {
        "broker_id": ids, "incarnation_id": uuids, "broker_epoch": longs, "rack": maybe(names),
        "endpoints": st.lists(endpoints, max_size=3).map(tuple), "features": st.lists(features, max_size=3).map(tuple),
        "fenced": st.booleans(), "in_controlled_shutdown": st.booleans(),
        "log_dirs": uuid_lists, "cordoned": uuid_lists, "inter_broker": maybe(names), "control_plane": maybe(names),
    },
    rec.UnregisterBrokerRecord: {"broker_id": ids, "broker_epoch": longs},
    rec.BrokerRegistrationChangeRecord: {
        "broker_id": ids, "broker_epoch": longs, "fenced": maybe(st.booleans()),
        "in_controlled_shutdown": maybe(st.booleans()), "log_dirs": maybe(uuid_lists), "cordoned": maybe(uuid_lists),
    },
    rec.TopicRecord: {"name": names, "topic_id": uuids},
    rec.RemoveTopicRecord: {"topic_id": uuids},
    rec.PartitionRecord: {
        "partition": ids, "topic_id": uuids, "replicas": id_lists, "isr": id_lists, "leader": maybe(ids),
        "leader_epoch": ids, "partition_epoch": ids, "removing": id_lists, "adding": id_lists,
        "directories": uuid_lists, "recovery_state": states, "elr": maybe(id_lists), "last_known_elr": maybe(id_lists),
    },
    rec.PartitionChangeRecord: {
        "partition": ids, "topic_id": uuids, "isr": maybe(id_lists), "leader": st.just(rec.NO_CHANGE) | maybe(ids),
        "replicas": maybe(id_lists), "removing": maybe(id_lists), "adding": maybe(id_lists),
        "recovery_state": maybe(states), "directories": maybe(uuid_lists), "elr": maybe(id_lists),
        "last_known_elr": maybe(id_lists),
    },
    rec.ConfigRecord: {
        "resource_type": st.sampled_from((2, 4)), "resource_name": names, "name": names, "value": maybe(names),
    },
    rec.ProducerIdsRecord: {"broker_id": ids, "broker_epoch": longs, "next_producer_id": longs},
    rec.FeatureLevelRecord: {"name": names, "level": st.integers(0, 32767)},
    rec.AccessControlEntryRecord: {"id": uuids, "acl": acls},
    rec.RemoveAccessControlEntryRecord: {"id": uuids},
    rec.UserScramCredentialRecord: {
        "name": names, "mechanism": st.sampled_from(ScramMechanism), "credential": credentials,
    },
    rec.RemoveUserScramCredentialRecord: {"name": names, "mechanism": st.sampled_from(ScramMechanism)},
    rec.ScramSecretRecord: {"secret": st.binary(max_size=64)},
    rec.ClientQuotaRecord: {
        "entity": entities, "key": names,
        "value": maybe(st.floats(allow_nan=False, allow_infinity=False)),
    },
    rec.NoOpRecord: {},
    rec.BeginTransactionRecord: {"name": maybe(names)},
    rec.EndTransactionRecord: {},
    rec.ControllerClaimRecord: {
        "controller_epoch": ids, "broker_id": ids, "host": names, "port": st.integers(0, 65535),
    },
}  # fmt: skip
records = st.one_of(*(st.builds(kind, **fields) for kind, fields in RECORDS.items()))


def test_access_control_entries_have_kafkas_layout() -> None:
    """AccessControlEntryRecord.json: Id, ResourceType, ResourceName, PatternType, Principal, Host, Operation,
    PermissionType; RemoveAccessControlEntryRecord.json: Id."""
    acl = AclBinding(
        ResourcePattern(ResourceKind.GROUP, "gr", PatternKind.PREFIXED),
        AclEntry("User:a", "*", Operation.DESCRIBE_CONFIGS, Permission.DENY),
    )
    acl_id = UUID(bytes=bytes(range(16)))
    record = rec.AccessControlEntryRecord(id=acl_id, acl=acl)
    assert encode_record(record) == (
        b"\x01\x12\x00" + bytes(range(16)) + b"\x03" + b"\x03gr" + b"\x04" + b"\x07User:a" + b"\x02*" + b"\x0a\x02\x00"
    )
    assert encode_record(rec.RemoveAccessControlEntryRecord(id=acl_id)) == b"\x01\x13\x00" + bytes(range(16)) + b"\x00"


def test_users_and_quotas_have_kafkas_layout() -> None:
    """UserScramCredentialRecord.json: Name, Mechanism, Salt, StoredKey, ServerKey, Iterations;
    RemoveUserScramCredentialRecord.json: Name, Mechanism; ClientQuotaRecord.json: Entity (EntityType, EntityName), Key,
    Value, Remove."""
    credential = ScramCredential(b"sa", b"st", b"sv", 4096)
    record = rec.UserScramCredentialRecord(name="al", mechanism=ScramMechanism.SCRAM_SHA_512, credential=credential)
    assert encode_record(record) == b"\x01\x0b\x00" + b"\x03al\x02\x03sa\x03st\x03sv" + b"\x00\x00\x10\x00" + b"\x00"
    gone = rec.RemoveUserScramCredentialRecord(name="al", mechanism=ScramMechanism.SCRAM_SHA_256)
    assert encode_record(gone) == b"\x01\x16\x00" + b"\x03al\x01" + b"\x00"
    quota = rec.ClientQuotaRecord(entity=entity_of([("user", "al"), ("client-id", None)]), key="k", value=1000.0)
    assert encode_record(quota) == (
        b"\x01\x0e\x00" + b"\x03" + b"\x05user\x03al\x00" + b"\x0aclient-id\x00\x00" + b"\x02k"
        b"\x40\x8f\x40\x00\x00\x00\x00\x00" + b"\x00" + b"\x00"
    )
    assert encode_record(rec.ClientQuotaRecord(entity=(("ip", "h"),), key="k", value=None)) == (
        b"\x01\x0e\x00" + b"\x02" + b"\x03ip\x02h\x00" + b"\x02k" + bytes(8) + b"\x01" + b"\x00"
    )


def test_no_record_shows_a_key() -> None:
    credential = ScramCredential(b"salt", b"stored", b"server", 4096)
    shown = repr(rec.UserScramCredentialRecord(name="a", mechanism=ScramMechanism.SCRAM_SHA_256, credential=credential))
    shown += repr(rec.ScramSecretRecord(secret=b"secret"))
    assert not [key for key in ("salt", "stored", "server", "b'secret'") if key in shown]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x01\x0b\x00" + b"\x03al\x07\x03sa\x03st\x03sv" + bytes(5), "7 is not a valid ScramMechanism"),
        (b"\x01\x0b\x00" + b"\x03al\x01\x00\x03st\x03sv" + bytes(5), "null where bytes are expected"),
        (b"\x01\x0e\x00" + b"\x02" + b"\x02x\x02h\x00" + b"\x02k" + bytes(10), "Unhandled client quota entity type: x"),
        (b"\x01\x0e\x00" + b"\x02" + b"\x03ip\x02h\x00" + b"\x02k\x7f\xf0" + bytes(8), "quota k is inf"),
    ],
)
def test_users_and_quotas_that_nobody_knows_cannot_be_read(data: bytes, text: str) -> None:
    with pytest.raises(CorruptRecordError, match=text):
        decode_record(data)


def test_an_entry_that_nobody_knows_cannot_be_read() -> None:
    acl = AclBinding(ResourcePattern(ResourceKind.GROUP, "g"), AclEntry("User:a", "*", Operation.READ, Permission.DENY))
    data = bytearray(encode_record(rec.AccessControlEntryRecord(id=UUID(int=1), acl=acl)))
    data[-3] = 99
    with pytest.raises(CorruptRecordError, match="99 is not a valid Operation"):
        decode_record(data)
    for back, number in ((2, 0), (2, 1), (3, 1)):
        data = bytearray(encode_record(rec.AccessControlEntryRecord(id=UUID(int=1), acl=acl)))
        data[-back] = number
        with pytest.raises(CorruptRecordError, match="it has what filters have"):
            decode_record(data)


@given(records)
def test_every_field_goes_there_and_back(record: rec.MetadataRecord) -> None:
    assert decode_record(encode_record(record)) == record


@given(records, st.data())
def test_broken_bytes_are_a_corrupt_record(record: rec.MetadataRecord, data: st.DataObject) -> None:
    whole = encode_record(record)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(CorruptRecordError):
        decode_record(cut)
    with pytest.raises(CorruptRecordError, match="ends at byte"):
        decode_record(whole + b"\0")
    flipped = bytearray(whole)
    flipped[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(CorruptRecordError):  # the only error there is
        decode_record(flipped)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x02\x14\x00\x00", "frame version 2"),
        (b"\x01\x63\x00\x00", "key 99 version 0"),
        (b"\x01\x03\x07\x00", "key 3 version 7"),
        (b"\x01\x02\x00\x00" + UUID(int=1).bytes + b"\x00", "null where a string"),
        (b"\x80\x80\x80\x80\x80\x80\x01", "varint"),
    ],
)
def test_what_is_not_known_is_named(data: bytes, message: str) -> None:
    with pytest.raises(CorruptRecordError, match=message):
        decode_record(data)


def test_a_registration_from_before_listeners_is_that_of_one_plaintext_endpoint() -> None:
    """As brokers of one listener have written it: nothing is said of who uses which, and nothing is now."""
    record = rec.RegisterBrokerRecord(
        broker_id=1, incarnation_id=UUID(int=7), broker_epoch=3,
        endpoints=(Endpoint(name="PLAINTEXT", host="h", port=9092),),
    )  # fmt: skip
    written = bytes.fromhex(
        "0100040000000100000000000000000000000000000000070000000000000003020a504c41494e54455854026823840000000100010000"
    )
    assert encode_record(record) == written
    assert decode_record(written) == record
