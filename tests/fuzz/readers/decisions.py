"""What requests lead to behind their decoders: the controller's decisions, its records, what brokers are told of them.

An input is up to eight requests in a row (an archive whose kinds are APIs), for one small cluster that is new each
time. The handlers are the broker's own; around them is just enough of a broker for them to run without waiting.
"""

import asyncio
import random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from tests.fuzz import archive, samples
from tests.fuzz.reader import Reader, Run

_APIS = (19, 20, 37, 43, 33, 44, 56, 62, 63, 67, 29, 30, 31)
_TOPIC_ID = UUID(int=77)


def _table() -> list[tuple[int, int]]:
    from holdfast.protocol.apis import INTERNAL, SPOKEN

    return [(key, version) for key, version in samples.spoken(SPOKEN, INTERNAL) if key in _APIS]


def unpack(data: bytes) -> list[tuple[int, bytes]]:
    """As archive.unpack with 256 kinds."""
    found, at = [], 0
    while len(data) - at >= 3 and len(found) < archive.MAX_FILES:
        size = data[at + 1] << 8 | data[at + 2]
        found.append((data[at], data[at + 3 : at + 3 + size]))
        at += 3 + size
    return found


class _Controller:
    """The controller where a broker has its loop: each decision is applied, written, read again and told."""

    def __init__(self, image: Any) -> None:
        from holdfast.controller.controller import Controller
        from holdfast.controller.settings import ControllerSettings

        self.core = Controller(image, ControllerSettings(max_partitions_per_request=200), random.Random(1))
        self.core.begin(0)
        self.written: list[bytes] = []
        self.ended = asyncio.Event()

    @property
    def image(self) -> Any:
        return self.core.image

    async def submit(self, event: Any) -> Any:
        from holdfast.controller import broadcast
        from holdfast.metadata.codec import decode_record, encode_record
        from holdfast.model.errors import HoldfastError
        from holdfast.protocol.framing import decode_request, encode_body

        decision = self.core.handle(event, 5)
        if decision.records:
            written = [encode_record(record) for record in decision.records]
            assert [decode_record(data) for data in written] == list(decision.records)
            delta = self.core.replay(decision.records, self.core.image.next_offset)
            plan = broadcast.plan(self.core.image, delta, offline=self.core.offline_replicas())
            for requests in broadcast.build_requests(self.core.image, plan, 1, 5).values():
                for request in requests:
                    again = decode_request(int(request.__api_key__), int(request.__version__), encode_body(request))
                    assert again == request
            self.written += written
        if isinstance(decision.reply, HoldfastError):
            raise decision.reply
        return decision.reply

    async def told_everybody(self, timeout_s: float) -> None: ...

    async def has_told(self, broker_id: int, broker_epoch: int) -> bool:
        return True


def _image() -> Any:
    from holdfast.metadata import records as m
    from holdfast.metadata.image import ClusterImage
    from holdfast.model.listeners import Endpoint

    made: list[Any] = []
    for broker in (1, 2, 3):
        endpoint = Endpoint(name="PLAINTEXT", host=f"h{broker}", port=9092)
        made.append(
            m.RegisterBrokerRecord(
                broker_id=broker,
                incarnation_id=UUID(int=broker),
                broker_epoch=broker,
                endpoints=(endpoint,),
                fenced=False,
                log_dirs=(UUID(int=broker),),
            )
        )
    made.append(m.TopicRecord(name="t1", topic_id=_TOPIC_ID))
    for number in range(3):
        replicas = (number % 3 + 1, (number + 1) % 3 + 1)
        made.append(
            m.PartitionRecord(
                partition=number,
                topic_id=_TOPIC_ID,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=(m.UNASSIGNED_DIRECTORY,) * 2,
            )
        )
    return ClusterImage.empty("c").apply(made, 0)[0]


def _make() -> Run:
    """Every decision can be written, read, applied and told; every request is answered, in bytes, or refused by a typed
    error; ISRs are replicas and leaders are in them; the whole reign's records make the same image again."""
    import logging
    from importlib import import_module

    from holdfast.broker.access import Access
    from holdfast.broker.acl_view import AclView
    from holdfast.broker.dispatch import HANDLERS
    from holdfast.broker.handlers.base import RequestContext
    from holdfast.broker.quota_view import QuotaView
    from holdfast.broker.session import Session
    from holdfast.controller import broadcast
    from holdfast.metadata.codec import decode_record
    from holdfast.model.config import BrokerConfig
    from holdfast.model.errors import HoldfastError
    from holdfast.model.listeners import ListenerUse
    from holdfast.protocol.apis import ApiKey
    from holdfast.protocol.framing import decode_request, encode_body
    from holdfast.security.acls import AclFilter
    from holdfast.security.authorizer import Authorizer

    logging.getLogger("holdfast.controller").setLevel(logging.CRITICAL)
    table, base, config = _table(), _image(), BrokerConfig.parse({"node.id": "1"})
    handlers = {
        key: getattr(
            import_module(f"holdfast.broker.handlers.{HANDLERS[ApiKey(key)]}"), f"handle_{ApiKey(key).name.lower()}"
        )
        for key in _APIS
    }

    def check(image: Any) -> None:
        for topic in image.topics.values():
            assert sorted(topic.partitions) == list(range(len(topic.partitions)))
            for partition in topic.partitions.values():
                assert partition.isr and set(partition.isr) <= set(partition.replicas)
                assert len(set(partition.replicas)) == len(partition.replicas)
                assert partition.leader is None or partition.leader in partition.isr

    listener = ListenerUse(name="PLAINTEXT", for_brokers=True, for_operators=True)

    def run(data: bytes) -> Any:
        controller = _Controller(base)
        broker: Any = SimpleNamespace(
            access=Access(acls=AclView(Authorizer())), controller=controller,
            quotas=None, quota_view=QuotaView(), config=config, broker_id=1, cluster_id="c",
            list_changes=asyncio.Lock(),
            metadata=SimpleNamespace(topics={"t1": {}}, topic_configs={}, broker_configs={}),
        )  # fmt: skip
        outcome = 0
        for kind, body in unpack(data):
            key, version = table[kind % len(table)]
            try:
                request = decode_request(key, version, body)
                connection: Any = SimpleNamespace(session=Session(), peer=("h", 1), listener=listener)
                ctx = RequestContext(
                    broker=broker, connection=connection, api_key=key, version=version, correlation_id=1,
                    client_id="c", body=body,
                )  # fmt: skip
                handling = handlers[key](ctx, request)
                try:
                    handling.send(None)
                    raise AssertionError("a handler waits for something")
                except StopIteration as done:
                    encode_body(done.value)
                outcome += 1
            except HoldfastError:
                continue
        if controller.written:
            image = controller.core.image
            check(image)
            again = base.apply([decode_record(record) for record in controller.written], base.next_offset)[0]
            assert again == image
            told = broadcast.full_state_requests(image, 2, {}, 1, 5)
            view = AclView(Authorizer())
            view.update(told[-1])
            assert set(view.matching(AclFilter())) == set(image.acls)
        return outcome, min(len(controller.written), 8)

    return run


def _corpus() -> list[bytes]:
    singles = samples.requests(_table())
    rng = random.Random(3)
    found = [archive.pack([single]) for single in singles]
    found += [archive.pack(rng.sample(singles, rng.randint(2, 4))) for _ in range(150)]
    return [item for item in found if len(item) <= 600]


READERS = (
    Reader(
        name="decisions",
        reads="what requests make a controller decide, write and tell",
        make=_make,
        corpus=_corpus,
        refusals=(),
        tokens=(
            b"\3t1", b"\0\2t1", b"\x021", "²".encode(), b"\0\0\0\1", b"\0\0\0\2", b"\0\0\0\3", b"\xff\xff\xff\xff",
            _TOPIC_ID.bytes, b"\2", b"\4", b"retention.ms", b"min.insync.replicas", b"-1", b"\x02\0\0\0\1",
        ),
        max_size=600,
        memory_base=8 << 20,
        headroom=256 << 20,
    ),
)  # fmt: skip
