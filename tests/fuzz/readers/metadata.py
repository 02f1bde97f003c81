"""Readers of the metadata log: one record, and the directory with segments and snapshots."""

import logging
from typing import Any
from uuid import UUID

from holdfast.model.errors import CorruptRecordError, HoldfastError
from holdfast.model.listeners import Endpoint
from tests.fuzz import archive, samples
from tests.fuzz.fixups import Fixup
from tests.fuzz.memory_files import MemoryFiles
from tests.fuzz.reader import Reader, Run

_ID = UUID(int=77)
_SNAPSHOT_BATCHES = 8  # modulo archive.KINDS these are batches too, so the mutator puts their CRCs right


def _our_records() -> list[Any]:
    from holdfast.metadata import records as m

    return [
        m.FeatureLevelRecord(name="metadata.version", level=30),
        m.RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=_ID,
            broker_epoch=3,
            endpoints=(Endpoint(name="PLAINTEXT", host="localhost", port=9092),),
            features=(("f", 0, 1),),
            rack="r1",
            log_dirs=(UUID(int=5), UUID(int=6)),
            cordoned=(UUID(int=5),),
        ),
        m.RegisterBrokerRecord(
            broker_id=2,
            incarnation_id=_ID,
            broker_epoch=4,
            endpoints=(Endpoint(name="PLAINTEXT", host="h", port=1),),
        ),
        m.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=3, fenced=False),
        m.BrokerRegistrationChangeRecord(
            broker_id=1, broker_epoch=3, in_controlled_shutdown=True, log_dirs=(_ID,), cordoned=()
        ),
        m.TopicRecord(name="t1", topic_id=_ID),
        m.PartitionRecord(
            partition=0,
            topic_id=_ID,
            replicas=(1, 2),
            isr=(1, 2),
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=(m.UNASSIGNED_DIRECTORY,) * 2,
        ),
        m.PartitionRecord(
            partition=1,
            topic_id=_ID,
            replicas=tuple(range(20)),
            isr=(2,),
            leader=None,
            leader_epoch=3,
            partition_epoch=5,
            directories=(UUID(int=5),),
            elr=(1,),
            last_known_elr=(2,),
            recovery_state=m.RecoveryState.RECOVERING,
        ),
        m.PartitionChangeRecord(partition=0, topic_id=_ID, isr=(1,), leader=None),
        m.PartitionChangeRecord(
            partition=0,
            topic_id=_ID,
            leader=2,
            replicas=(1, 2, 3),
            adding=(3,),
            removing=(),
            directories=(UUID(int=5),),
            elr=(),
            last_known_elr=(1,),
            recovery_state=m.RecoveryState.RECOVERED,
        ),
        m.ConfigRecord(resource_type=2, resource_name="t1", name="retention.ms", value="1"),
        m.ConfigRecord(resource_type=4, resource_name="", name="x", value=None),
        m.ProducerIdsRecord(broker_id=1, broker_epoch=3, next_producer_id=1000),
        m.AccessControlEntryRecord(id=samples.acl().id(), acl=samples.acl()),
        m.RemoveAccessControlEntryRecord(id=samples.acl().id()),
        *samples.users(),
        m.RemoveUserScramCredentialRecord(name="u", mechanism=m.ScramMechanism.SCRAM_SHA_256),
        m.ClientQuotaRecord(entity=(("ip", "h"),), key="connection_creation_rate", value=None),
        m.NoOpRecord(),
        m.BeginTransactionRecord(name="tx"),
        m.EndTransactionRecord(),
        m.ControllerClaimRecord(controller_epoch=2, broker_id=1, host="localhost", port=9093),
        m.RemoveTopicRecord(topic_id=_ID),
        m.UnregisterBrokerRecord(broker_id=2, broker_epoch=4),
    ]


def _make_records() -> Run:
    """One record. What is understood is written and read again as the same."""
    from holdfast.metadata.codec import decode_record, encode_record

    def run(data: bytes) -> Any:
        record = decode_record(data)
        assert decode_record(encode_record(record)) == record
        return type(record).__name__

    return run


def _make_news() -> Run:
    """What a broker is told of users and quotas, in one field: what is understood is written and read as the same."""
    from holdfast.metadata.codec_news import decode_news, encode_news

    def run(data: bytes) -> Any:
        records = decode_news(data)
        assert decode_news(encode_news(records)) == records
        return len(records)

    return run


def _news_corpus() -> list[bytes]:
    from holdfast.metadata.codec_news import encode_news

    records = samples.users()
    return [encode_news(records), encode_news(records[1:2]), encode_news(records[2:]), encode_news(())]


def _records_corpus() -> list[bytes]:
    from holdfast.metadata.codec import encode_record
    from holdfast.records.record import decode_batches

    found = {encode_record(record) for record in _our_records()}
    for data in samples.recorded_files("__cluster_metadata-0").items():
        if data[0].endswith(".log"):
            found |= {r.value for r in decode_batches(data[1]) if r.value is not None}
    return sorted(item for item in found if len(item) < 300)


def _make_acl_news() -> Run:
    """What brokers are told of access control entries, and decide by. What is understood is written and read again as
    the same; who may anything is who some entry allows it."""
    from holdfast.metadata.codec_acls import decode_acl_news, encode_acl_news
    from holdfast.security.authorizer import Authorizer
    from holdfast.security.principal import ANONYMOUS
    from holdfast.security.resources import Operation

    def run(data: bytes) -> Any:
        news = decode_acl_news(data)
        assert decode_acl_news(encode_acl_news(news.added, news.removed)) == news
        authorizer = Authorizer().with_changes(news.added).with_changes((), news.removed)
        assert authorizer == Authorizer().with_all(set(news.added) - set(news.removed))
        for acl in news.added:
            decision = authorizer.decide(ANONYMOUS, "h", Operation.READ, acl.resource.kind, acl.resource.name)
            assert not decision.allowed or decision.acl in news.added
        return len(news.added) & 3, len(news.removed) & 3

    return run


def _acl_news_corpus() -> list[bytes]:
    from holdfast.metadata.codec_acls import encode_acl_news

    acl = samples.acl()
    return [encode_acl_news([]), encode_acl_news([acl]), encode_acl_news([], [acl]), encode_acl_news([acl], [acl])]


# -- the directory ---------------------------------------------------------------------------------------------------


def directory_of(data: bytes) -> MemoryFiles:
    """Segments and snapshots, the n-th of each with the n-th base offset; kind 2 is a segment whose name has an epoch,
    kinds 3 to 7 are snapshots as well."""
    files = MemoryFiles()
    bases = (0, 4, 8, 19)
    segments = snapshots = 0
    for kind, content in archive.unpack(data):
        if kind in (0, 2):
            claim = f"-{segments & 1:010d}" if kind else ""
            files.contents[f"/m/{bases[segments & 3]:020d}{claim}.log"] = bytearray(content)
            segments += 1
        else:
            base, epoch = bases[snapshots & 3], snapshots & 1
            files.contents[f"/m/{base:020d}-{epoch:010d}.checkpoint"] = bytearray(content)
            snapshots += 1
    return files


def _make_log() -> Run:
    """Recovery of the metadata log and the image of it: a typed error, or a log that takes an append and then recovers
    to the same records and the new one."""
    from holdfast.coordination.metadata_log import MetadataLog
    from holdfast.metadata.image import ClusterImage
    from holdfast.metadata.records import NoOpRecord
    from holdfast.model.errors import MetadataError

    logging.getLogger("holdfast.coordination").setLevel(logging.CRITICAL)

    def run(data: bytes) -> Any:
        files: Any = directory_of(data)
        log = MetadataLog("/m", files, lambda: 0)
        records = log.recover()
        assert log.end_offset >= 0
        if len(data) & 3 == 0:
            log.append([NoOpRecord()], max(1, log.read().last_epoch))  # no claim has a lower one than it found
            again = MetadataLog("/m", files, lambda: 0)
            assert again.recover() == [*records, NoOpRecord()]
            assert again.end_offset == log.end_offset
        try:
            ClusterImage.empty("c").apply(records, 0)
        except MetadataError:
            return "senseless"
        return len(records) & 7

    return run


def _log_corpus() -> list[bytes]:
    from holdfast.coordination.metadata_log import make_batch

    records = _our_records()
    one = b"".join(make_batch([record], i, 1, 0).data for i, record in enumerate(records[:4]))
    rest = b"".join(make_batch([record], 4 + i, 1, 0).data for i, record in enumerate(records[4:8]))
    end = b"".join(make_batch([record], 8 + i, 1, 0).data for i, record in enumerate(records[8:14]))
    single = [archive.pack([(0, make_batch([record], 0, 1, 0).data)]) for record in records]
    pairs = [
        archive.pack([(0, b""), (2, make_batch([first], 0, 1, 0).data), (0, make_batch([second], 4, 1, 0).data)])
        for first, second in zip(records, records[5:], strict=False)
    ]
    found = [
        *single,
        *pairs,
        archive.pack([(0, one)]),
        archive.pack([(0, one + rest)]),
        archive.pack([(0, make_batch(records[:6], 0, 1, 0).data)]),
        archive.pack([(0, b""), (0, b""), (_SNAPSHOT_BATCHES + 1, one), (_SNAPSHOT_BATCHES + 2, one)]),
        archive.pack([(0, one), (0, rest), (2, one), (2, make_batch(records[:4], 0, 2, 0).data)]),
        archive.pack([(0, end)]),
    ]
    files = samples.recorded_files("__cluster_metadata-0")
    data = next(d for name, d in files.items() if name.endswith(".log"))
    found.append(archive.pack([(0, data[:380])]))
    return found


READERS = (
    Reader(
        name="metadata-records",
        reads="one record of the metadata log",
        make=_make_records,
        corpus=_records_corpus,
        refusals=(CorruptRecordError,),
        tokens=(b"\1\5\2", b"\1\3\2", b"\1\x11\3", b"\1\xa0\x9c\1\0", b"\1\0\4", b"\1\2\0", b"\xff\xff\xff\xff\x0f"),
        max_size=300,
    ),
    Reader(
        name="acl-news",
        reads="access control entries as brokers are told of them",
        make=_make_acl_news,
        corpus=_acl_news_corpus,
        refusals=(ValueError,),
        tokens=(b"User:*", b"\2*", b"\3\3", b"\2\4", b"\xff\xff\xff\xff\x0f"),
        max_size=300,
    ),
    Reader(
        name="user-news",
        reads="what brokers are told of SCRAM users and quotas",
        make=_make_news,
        corpus=_news_corpus,
        refusals=(CorruptRecordError,),
        tokens=(b"\1\0", b"\1\1", b"\1\x0b\0", b"\1\x0e\0", b"\1\x16\0", b"\xff\xff\xff\xff\x0f"),
        max_size=400,
    ),
    Reader(
        name="metadata-log",
        reads="the metadata log's directory: segments, snapshots; the image of it",
        make=_make_log,
        corpus=_log_corpus,
        refusals=(HoldfastError,),
        fixup=Fixup.ARCHIVE,
        tokens=(b"\0\0\x60", b"\1\5\2", b"\1\3\2"),
        max_size=400,
        memory_base=256 << 10,
    ),
)
