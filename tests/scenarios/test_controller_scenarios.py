"""Scenarios of the controller as text: commands, and everything that follows from them.

    command arguments
    ----
    what was recorded, replied, told to the brokers

Each file in controller/ is one cluster from its start. HOLDFAST_REWRITE=1 writes the output anew; the difference is
then read in review. Every step also checks the invariants of the image, and that a replay of all records gives it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from holdfast.controller import broadcast, events
from holdfast.controller.controller import Controller
from holdfast.controller.feature_events import FeatureUpdate, UpdateFeatures, UpgradeType
from holdfast.controller.settings import ControllerSettings
from holdfast.metadata import records as rec
from holdfast.metadata.codec import decode_record, encode_record
from holdfast.metadata.image import ClusterDelta, ClusterImage
from holdfast.metadata.store import Candidate, InMemoryStore, SharedMemory
from holdfast.model.errors import HoldfastError
from holdfast.model.fates import ALL_KEPT, LogEnd, ReplicaFate, ReplicaFates
from holdfast.model.features import REGISTERED, TRANSACTION_VERSION
from holdfast.model.listeners import Endpoints
from holdfast.model.types import TopicPartition
from tests.scenarios.texts import check_file

FILES = sorted((Path(__file__).parent / "controller").glob("*.txt"))
CANDIDATE = Candidate(broker_id=1, host="host-1", port=9001)


class ZeroRng:
    """Counts where others are random."""

    def __init__(self) -> None:
        self._count = 0

    def getrandbits(self, k: int, /) -> int:
        self._count += 1
        return self._count

    def randrange(self, stop: int, /) -> int:
        return 0


class Scenario:
    """One controller after another over one store, driven by lines of text."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.out: list[str] = []
        self.rng = ZeroRng()
        self.shared = SharedMemory()
        self.settings = ControllerSettings()
        self.incarnations: dict[int, int] = {}
        self.commands: dict[str, Callable[..., None]] = {
            name.removeprefix("do_"): getattr(self, name) for name in dir(self) if name.startswith("do_")
        }
        self._reign()

    def _reign(self) -> None:
        self.store = InMemoryStore(self.shared)
        self.claim = self.store.claim(CANDIDATE)
        loaded = self.store.load(self.claim)
        image, _ = ClusterImage.empty(self.store.cluster_id()).apply(loaded.records, loaded.base_offset)
        self.controller = Controller(image, self.settings, self.rng)
        self.controller.begin(self.now_ms)
        self.heard_of: set[int] = set()

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    def run(self, line: str) -> list[str]:
        """The output of one command."""
        self.out = []
        name, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        self.commands[name](*(word for word in words if "=" not in word), **options)
        return self.out

    def handle(self, event: Any, *, quiet: bool = False) -> Any:
        decision = self.controller.handle(event, self.now_ms)
        before = self.image
        if decision.records:
            base = self.store.commit(decision.records, self.claim.epoch)
            assert base == before.next_offset
            delta = self.controller.replay(decision.records, base)
            check(self.image, before, self.heard_of)
            self._replay_again()
            if not quiet:
                for offset, record in enumerate(decision.records, base):
                    self.out.append(f"record {offset} {self.show(record, before)}")
                self._tell(delta)
        if not quiet:
            for broker in decision.resend_to:
                self.out.append(f"resend all to {broker}")
            self._reply(decision.reply)
        return decision.reply

    def _replay_again(self) -> None:
        """What was recorded, through its bytes, is the image."""
        log = [decode_record(encode_record(record)) for record in self.shared.log]
        assert log == self.shared.log
        again, _ = ClusterImage.empty(self.image.cluster_id).apply(log, 0)
        assert again == self.image

    def _reply(self, reply: Any) -> None:
        if reply is None:
            return
        if isinstance(reply, HoldfastError):
            self.out.append(f"refused {type(reply).__name__}: {reply}")
            return
        for group in ("topics", "partitions", "resources"):
            for result in getattr(reply, group, ()):
                name = getattr(result, "name", getattr(result, "resource_name", None))
                if hasattr(result, "partition"):
                    topic = getattr(result, "topic", None) or self.image.topic_names.get(result.topic_id)
                    name = f"{topic}-{result.partition}"
                if result.error is not None:
                    self.out.append(f"refused {name} {type(result.error).__name__}: {result.error}")
                elif isinstance(result, events.AlterPartitionResult):
                    self.out.append(
                        f"ok {name} leader={result.leader}/{result.leader_epoch} "
                        f"isr={numbers(result.isr)} v{result.partition_epoch}"
                        + (f" elr={numbers(result.eligible)}" if result.eligible else "")
                        + (" recovering" if result.recovering else "")
                    )
                else:
                    self.out.append(f"ok {name}")
        if isinstance(reply, (events.Registered, events.HeartbeatReply, events.AllocatedProducerIds)):
            self.out.append(f"reply {reply}".replace("is_caught_up=True, ", ""))

    def _tell(self, delta: ClusterDelta) -> None:
        plan = broadcast.plan(self.image, delta, offline=self.controller.offline_replicas())
        built = broadcast.build_requests(self.image, plan, 1, self.claim.epoch)
        for broker in sorted(built):
            for request in built[broker]:
                self.out.append(f"tell {broker} {show_request(request)}")

    def show(self, record: Any, before: ClusterImage) -> str:
        names = {**dict(before.topic_names), **dict(self.image.topic_names)}
        topic = names.get(getattr(record, "topic_id", None))
        match record:
            case rec.RegisterBrokerRecord():
                return f"Register {record.broker_id} epoch={record.broker_epoch}"
            case rec.BrokerRegistrationChangeRecord():
                changed = {
                    "fenced": record.fenced,
                    "draining": record.in_controlled_shutdown,
                    "cordoned": None if record.cordoned is None else len(record.cordoned),
                }
                return f"Broker {record.broker_id} " + " ".join(f"{k}={v}" for k, v in changed.items() if v is not None)
            case rec.UnregisterBrokerRecord():
                return f"Unregister {record.broker_id}"
            case rec.TopicRecord():
                return f"Topic {record.name}"
            case rec.RemoveTopicRecord():
                return f"RemoveTopic {topic}"
            case rec.PartitionRecord():
                return (
                    f"Partition {topic}-{record.partition} replicas={numbers(record.replicas)} "
                    f"isr={numbers(record.isr)} leader={record.leader}"
                )
            case rec.PartitionChangeRecord():
                parts = [f"Change {topic}-{record.partition}"]
                if record.leader is not rec.NO_CHANGE:
                    parts.append(f"leader={record.leader}")
                if record.isr is not None:
                    parts.append(f"isr={numbers(record.isr) or 'none'}")
                if record.elr is not None:
                    parts.append(f"elr={numbers(record.elr) or 'none'}")
                if record.last_known_elr is not None:
                    parts.append(f"last_known={numbers(record.last_known_elr) or 'none'}")
                if record.recovery_state is not None:
                    parts.append(record.recovery_state.name.lower())
                return " ".join(parts)
            case rec.FeatureLevelRecord():
                return f"Feature {record.name}={record.level}"
            case rec.ConfigRecord():
                return f"Config {record.resource_name or '<default>'} {record.name}={record.value}"
            case _:
                return str(record)

    # -- commands ----------------------------------------------------------------------------------------------

    def do_settings(self, **options: str) -> None:
        kinds = {"unclean_election": bool, "auto_rebalance": bool}
        values = {k: (v == "true") if k in kinds else int(v) for k, v in options.items()}
        self.settings = ControllerSettings(**values)  # type: ignore[arg-type]
        self._reign()

    def do_brokers(self, *ids: str, rack: str = "") -> None:
        for broker in map(int, ids):
            self._register(broker, rack=rack or None, quiet=True)
            self._heartbeat(broker, quiet=True)

    def do_register(
        self, broker: str, *flags: str, host: str = "", dirs: str = "", cordoned: str = "", continues: str = "",
        knows: str | None = None, **fates: str,
    ) -> None:  # fmt: skip
        """``rest`` and ``<topic>-<number>`` may have a fate: kept, damaged, lost, unknown."""
        rest = ReplicaFate[fates.pop("rest", "kept").upper()]
        others = {where(name): ReplicaFate[fate.upper()] for name, fate in fates.items()}
        what = ReplicaFates(continues=int(continues) if continues else None, rest=rest, others=others)
        self._register(
            int(broker), same="same" in flags, host=host, dirs=dirs, cordoned=cordoned, fates=what, knows=knows
        )

    def _register(
        self, broker: int, *, same: bool = False, host: str = "", rack: str | None = None, dirs: str = "",
        cordoned: str = "", fates: ReplicaFates = ALL_KEPT, knows: str | None = None, quiet: bool = False,
    ) -> None:  # fmt: skip
        """``knows``: the highest level of transaction.version, "" for none."""
        levels = () if not knows else ((TRANSACTION_VERSION, 0, int(knows)),)
        if not same:
            self.incarnations[broker] = self.incarnations.get(broker, 0) + 1
        self.handle(
            events.BrokerRegister(
                broker_id=broker,
                incarnation_id=UUID(int=broker * 1000 + self.incarnations[broker]),
                endpoints=Endpoints.one(host or f"host-{broker}", 9000 + broker),
                rack=rack,
                log_dirs=ids(dirs),
                cordoned=ids(cordoned),
                fates=fates,
                features=REGISTERED if knows is None else levels,
            ),
            quiet=quiet,
        )

    def do_heartbeat(self, broker: str, *flags: str, offline: str = "", epoch: str = "", cordoned: str = "") -> None:
        self._heartbeat(int(broker), flags=flags, offline=offline, epoch=epoch, cordoned=cordoned)

    def _heartbeat(
        self, broker: int, *, flags: tuple[str, ...] = (), offline: str = "", epoch: str = "", cordoned: str = "",
        quiet: bool = False,
    ) -> None:  # fmt: skip
        registered = self.image.brokers.get(broker)
        self.heard_of.add(broker)
        self.handle(
            events.BrokerHeartbeat(
                broker_id=broker,
                broker_epoch=int(epoch) if epoch else -1 if registered is None else registered.epoch,
                want_fence="fence" in flags,
                want_shutdown="shutdown" in flags,
                offline_dirs=ids(offline),
                cordoned=ids(cordoned.replace("none", "")) if cordoned else None,
            ),
            quiet=quiet,
        )

    def do_died(self, broker: str, *flags: str) -> None:
        epoch = self.image.brokers[int(broker)].epoch
        refused = "silent" not in flags
        self.handle(events.BrokerConnectionLost(broker_id=int(broker), broker_epoch=epoch, refused=refused))

    def do_replicas_offline(self, broker: str, *partitions: str) -> None:
        self.handle(events.ReplicasOffline(broker_id=int(broker), partitions=tuple(map(where, partitions))))

    def do_ends(self, broker: str, **partitions: str) -> None:
        """How far its logs go: ``<topic>-<number>=<leader epoch>/<end>``, or ``none/<end>``."""
        told = []
        for name, text in partitions.items():
            epoch, _, end = text.partition("/")
            at = where(name)
            current = self.image.topics[at.topic].partitions[at.partition].leader_epoch
            told.append((at, current, LogEnd(None if epoch == "none" else int(epoch), int(end))))
        self.handle(events.ReplicaEnds(broker_id=int(broker), ends=tuple(told)))

    def do_unregister(self, broker: str) -> None:
        self.handle(events.UnregisterBroker(broker_id=int(broker)))

    def do_advance(self, ms: str, *heartbeats: str) -> None:
        """Time passes in steps in which the named brokers heartbeat."""
        end_ms = self.now_ms + int(ms)
        while self.now_ms < end_ms:
            self.now_ms = min(end_ms, self.now_ms + 1000)
            for broker in map(int, heartbeats):
                self._heartbeat(broker, quiet=True)
            while due := self.controller.due(self.now_ms):
                for event in due:
                    self.handle(event)

    def do_frozen(self, ms: str) -> None:
        """The controller did not run for a while."""
        self.now_ms += int(ms)
        for event in self.controller.due(self.now_ms):
            self.handle(event)

    def do_failover(self) -> None:
        offline = self.controller.offline_replicas()
        self._reign()
        self.out.append(f"epoch {self.claim.epoch}, offline replicas known: {len(self.controller.offline_replicas())}")
        assert self.controller.offline_replicas() is not offline
        for broker in sorted(self.image.brokers):
            for request in broadcast.full_state_requests(
                self.image, broker, self.controller.offline_replicas(), 1, self.claim.epoch
            ):
                self.out.append(f"tell {broker} {show_request(request)}")

    def do_create(self, name: str, *flags: str, n: str = "", rf: str = "", to: str = "", **configs: str) -> None:
        topic = events.TopicToCreate(
            name="" if name == "''" else name,
            partitions=int(n) if n else None,
            replication_factor=int(rf) if rf else None,
            assignments=tuple(enumerate(lists(to))),
            configs=tuple((key, None if value == "null" else value) for key, value in configs.items()),
        )
        twice = 2 if "twice" in flags else 1
        self.handle(events.CreateTopics(topics=(topic,) * twice, validate_only="validate" in flags))

    def do_grow(self, name: str, *flags: str, n: str, to: str | None = None) -> None:
        more = events.MorePartitions(name=name, count=int(n), assignments=None if to is None else lists(to))
        twice = 2 if "twice" in flags else 1
        self.handle(events.CreatePartitions(topics=(more,) * twice, validate_only="validate" in flags))

    def do_delete(self, *names: str) -> None:
        self.handle(events.DeleteTopics(topics=tuple((name, None) for name in names)))

    def do_delete_id(self, topic_id: str, name: str | None = None) -> None:
        self.handle(events.DeleteTopics(topics=((name, UUID(int=int(topic_id))),)))

    def do_isr(self, broker: str, at: str, isr: str, **options: str) -> None:
        topic, number = where(at)
        image = self.image.topics[topic]
        partition = image.partitions.get(number)
        epochs = {int(b): int(e) for b, e in (pair.split("@") for pair in isr.split(",") if "@" in pair)}
        members = tuple(int(member.split("@")[0]) for member in isr.split(","))
        proposal = events.AlterPartitionState(
            topic_id=UUID(int=99) if options.get("id") == "unknown" else image.topic_id,
            partition=number,
            leader_epoch=int(options.get("leader_epoch", partition.leader_epoch if partition else 0)),
            partition_epoch=int(options.get("partition_epoch", partition.partition_epoch if partition else 0)),
            isr=tuple((member, epochs.get(member)) for member in members),
            recovered=options.get("recovering") != "true",
        )
        epoch = int(options.get("broker_epoch", self.image.brokers[int(broker)].epoch))
        self.handle(events.AlterPartition(broker_id=int(broker), broker_epoch=epoch, partitions=(proposal,)))

    def do_elect(self, kind: str, *partitions: str) -> None:
        wanted = None if partitions == ("all",) else tuple(tuple(where(p)) for p in partitions)
        self.handle(events.ElectLeaders(unclean=kind == "unclean", partitions=wanted))  # type: ignore[arg-type]

    def do_config(self, kind: str, name: str, *flags: str, **values: str) -> None:
        change = events.ConfigChange(
            resource_type={"topic": 2, "broker": 4, "other": 8}[kind],
            resource_name="" if name == "<default>" else name,
            values=tuple((key, value or None) for key, value in values.items()),
            replace_all="all" in flags,
        )
        self.handle(events.AlterConfigs(changes=(change,), validate_only="validate" in flags))

    def do_features(self, *flags: str, how: str = "upgrade", **levels: str) -> None:
        kind = UpgradeType.__members__.get(how.upper())
        updates = tuple(FeatureUpdate(name=n, level=int(v), upgrade_type=kind) for n, v in levels.items())
        self.handle(UpdateFeatures(updates=updates, validate_only="validate" in flags))
        self.out.append(f"in force: {dict(self.image.features)}")

    def do_ids(self, broker: str, epoch: str = "") -> None:
        registered = self.image.brokers[int(broker)].epoch
        self.handle(events.AllocateProducerIds(broker_id=int(broker), broker_epoch=int(epoch) if epoch else registered))

    def do_state(self) -> None:
        for broker in sorted(self.image.brokers.values(), key=lambda b: b.id):
            flags = [name for name in ("fenced", "in_controlled_shutdown") if getattr(broker, name)]
            flags += ["fully_cordoned"] if broker.log_dirs and set(broker.log_dirs) <= set(broker.cordoned) else []
            self.out.append(f"broker {broker.id} epoch={broker.epoch} {' '.join(flags) or 'active'}")
        for name in sorted(self.image.topics):
            for number, p in sorted(self.image.topics[name].partitions.items()):
                self.out.append(
                    f"{name}-{number} replicas={numbers(p.replicas)} isr={numbers(p.isr) or 'none'} "
                    f"leader={p.leader}/{p.leader_epoch} v{p.partition_epoch}"
                    + (f" elr={numbers(p.elr)}" if p.elr else "")
                    + (f" last_known={numbers(p.last_known_elr)}" if p.last_known_elr else "")
                    + (" recovering" if p.recovery_state else "")
                )


def check(image: ClusterImage, before: ClusterImage, heard_of: set[int]) -> None:
    """What must be true of every image, and between one and the next."""
    for topic in image.topics.values():
        assert image.topic_names[topic.topic_id] == topic.name
        assert sorted(topic.partitions) == list(range(len(topic.partitions)))
        old_topic = before.topics.get(topic.name)
        for number, p in topic.partitions.items():
            assert {*p.isr, *p.elr, *p.last_known_elr} <= set(p.replicas)
            assert not set(p.isr) & set(p.elr)
            assert not set(p.isr) & set(p.last_known_elr)
            assert not set(p.elr) & set(p.last_known_elr)
            assert p.isr or p.leader is None
            assert len(set(p.replicas)) == len(p.replicas)
            if p.leader is not None:
                assert p.leader in p.isr
                assert not image.brokers[p.leader].fenced
            live = {m for m in p.isr if m in image.brokers and image.brokers[m].may_lead}
            if live & heard_of:  # else they stay until somebody is heard of
                assert live == set(p.isr)
            old = None
            if old_topic is not None and old_topic.topic_id == topic.topic_id:
                old = old_topic.partitions.get(number)
            if old is not None:
                assert p.leader_epoch >= old.leader_epoch
                assert p.partition_epoch >= old.partition_epoch
                assert p.leader == old.leader or p.leader_epoch > old.leader_epoch
                assert p == old or p.partition_epoch > old.partition_epoch


def show_request(request: Any) -> str:
    """One of the inter-broker requests, in a line."""
    kind = type(request).__name__.removesuffix("Request")
    full = " full" if getattr(request, "type", 1) == 2 else ""
    parts = []
    for topic in request.topic_states:
        for p in topic.partition_states:
            where_ = f"{topic.topic_name}-{p.partition_index}"
            if kind == "LeaderAndIsr":
                more = f" elr={numbers(p.eligible)}" if p.eligible else ""
                more += " recovering" if p.leader_recovery_state else ""
                more += " new" if p.is_new else ""
                parts.append(f"{where_} {p.leader}/{p.leader_epoch} isr={numbers(p.isr) or 'none'}{more}")
            elif kind == "UpdateMetadata":
                offline = f" offline={numbers(p.offline_replicas)}" if p.offline_replicas else ""
                parts.append(f"{where_} {p.leader}/{p.leader_epoch}{offline}")
            else:
                parts.append(f"{where_} delete" if p.delete_partition else where_)
    if kind == "UpdateMetadata":
        parts.insert(0, f"brokers={numbers(b.id for b in request.live_brokers) or 'none'}")
        parts += [f"config {c.topic} {pairs(c.configs)}" for c in request.topic_configs]
        parts += [f"config broker {c.broker} {pairs(c.configs)}" for c in request.broker_configs]
    return f"{kind}{full} " + " | ".join(parts)


def pairs(configs: Any) -> str:
    return "{" + ", ".join(f"{c.key}={c.value}" for c in configs) + "}"


def numbers(values: Any) -> str:
    return ",".join(map(str, values))


def ids(text: str) -> tuple[UUID, ...]:
    return tuple(UUID(int=int(word)) for word in text.split(",") if word)


def lists(text: str) -> tuple[tuple[int, ...], ...]:
    """ "1,2/2,3" as lists of brokers."""
    return tuple(tuple(int(b) for b in part.split(",") if b) for part in text.split("/")) if text else ()


def where(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    check_file(path, Scenario().run)


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 5
