"""One run: brokers, clients, the schedule, and the verdict at the end.

    start -> calm -> [round: faults -> heal -> in sync and writing]* -> load ends -> everything read -> compared

Owns the order of things and the limits after which waiting is a violation. A violation that shows while it runs ends
the rounds: the logs are best when they are young.
"""

from __future__ import annotations

import heapq
import resource
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos import replicas
from tests.chaos.cards import Extras, extras, others_may_go
from tests.chaos.client_locks import waiting_for_ever
from tests.chaos.cordons import steps as cordon_steps
from tests.chaos.faults import Faults, Steps
from tests.chaos.ground import Ground
from tests.chaos.producers import EAGER, QUIET, AiokafkaLoad, ConfluentLoad, Load, all_ended
from tests.chaos.readers import EndWatcher, Follower, Jumper, Member, Reader, ends_of
from tests.chaos.recorder import Place, Recorder, place_name
from tests.chaos.report import Outcome, RoundResult
from tests.chaos.schedule import Pace, Round, schedule, topic_changes
from tests.chaos.topics import PassingTopics, wrong_topics

TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "pairs": (4, {"min.insync.replicas": "2"}),
    "small-segments": (2, {"min.insync.replicas": "2", "segment.bytes": "1048576"}),
    "alone": (2, {"min.insync.replicas": "1"}),
}
"""Name -> partitions and settings; three replicas each."""
PLACES: list[Place] = [(topic, partition) for topic, (count, _) in TOPICS.items() for partition in range(count)]
START_S = 60
HEAL_S = 90
"""TCP tries again ever more slowly: as long after a cut as the cut was."""
FLUSH_S = 200
READ_S = 120
LOCK_S = 20
"""After which a reader that has not ended is looked at: it may be waiting for itself."""
CALM_S = 1.0
LOCKED = "librdkafka waits for a lock of its own for ever (its 5476)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is run. ``rate``: records a second of all producers together."""

    seed: int
    seconds: float
    pace: Pace
    rate: float
    command: str
    commit: str
    calm_s: float
    """At least so long between a round and the next, with everything in sync."""


class Run:
    """``go`` once. ``say`` gets lines for a person, ``tick`` is called several times a second with the seconds gone."""

    def __init__(
        self,
        plan: Plan,
        directory: Path,
        ground: Ground,
        *,
        say: Callable[[str], None],
        tick: Callable[[float, Recorder], None],
    ) -> None:
        self.plan, self.directory = plan, directory
        self._say, self._tick_outside = say, tick
        self._network, self._ensemble, self._disks = ground.network, ground.ensemble, ground.disks
        self.cluster = directory / "cluster"
        self._metadata = None if ground.disks is None else ground.disks.metadata
        self._cordons: Counter[str] = Counter()
        self.brokers = ground.brokers(_broker_settings(plan.pace, with_ensemble=ground.ensemble is not None))
        self.recorder = Recorder(directory)
        self._faults = Faults(self.brokers, ground, self.recorder.found)
        self._notes: list[str] = []
        self._results: list[RoundResult] = []
        self._began = time.monotonic()
        self._producers: list[Load] = []
        self._readers: list[Reader] = []
        self._replaced = 0
        self._topics: PassingTopics | None = None
        self._logs: dict[str, Iterator[int | None]] = {}
        self._told: set[str] = set()

    # -- the whole ---------------------------------------------------------------------------------------------

    def go(self) -> Outcome:
        """Never raises for what the cluster does; that is in the outcome."""
        rounds = schedule(self.plan.seed, self.plan.seconds, self.plan.pace)
        threading.excepthook = self._thread_failed
        try:
            self._start()
            self._play_all(rounds)
            minutes = self._gone / 60
            self._finish()
        finally:
            self.brokers.kill_all()
        return self._outcome(minutes)

    def _start(self) -> None:
        for broker in self.brokers.ids:
            self.brokers.start(broker)
        self._wait(lambda: self._view_is_full([]), "the brokers to see each other", START_S)
        self.brokers.make_users()
        admin = AdminClient({"bootstrap.servers": self.brokers.bootstrap, **QUIET, **self.brokers.login()})
        # One copy is not enough where a disk may lose what was not flushed.
        least = {} if self._disks is None else {"min.insync.replicas": "2"}
        new = [NewTopic(name, count, 3, config={**config, **least}) for name, (count, config) in TOPICS.items()]
        for future in admin.create_topics(new).values():
            future.result(START_S)
        self._wait(lambda: self._view_is_full(list(TOPICS)), "all replicas to be in sync", START_S)
        self.recorder.watch(PLACES)
        self._begin_load()
        started = time.monotonic_ns()
        self._wait(lambda: not self.recorder.without_ack_since(started), "acks in every partition", START_S)
        self.recorder.take_pause()
        self._began = time.monotonic()

    def _begin_load(self) -> None:
        plan, recorder, bootstrap = self.plan, self.recorder, self.brokers.bootstrap
        common = {"bootstrap": bootstrap, "seed": plan.seed}
        login = self.brokers.login()
        eager = {**EAGER, **login}
        kafka_login = {} if self.brokers.security is None else self.brokers.security.aiokafka()
        topics = [topic for topic, (count, _) in TOPICS.items() for _ in range(count)]
        self._producers = [
            ConfluentLoad(recorder, 1, topics, rate=plan.rate * 0.4, settings=eager, **common),  # type: ignore[arg-type]
            ConfluentLoad(recorder, 2, topics, rate=plan.rate * 0.4, settings=login, **common),  # type: ignore[arg-type]
            AiokafkaLoad(recorder, 3, topics, rate=plan.rate * 0.2, login=kafka_login, **common),  # type: ignore[arg-type]
        ]
        stays_s = plan.pace.apart[1] * 2
        self._readers = [
            Follower(recorder, 1, PLACES, bootstrap=bootstrap, settings=eager),
            Follower(recorder, 2, PLACES, bootstrap=bootstrap, settings=login),
            Jumper(recorder, 3, PLACES, settings=eager, **common),  # type: ignore[arg-type]
            Member(recorder, 4, list(TOPICS), bootstrap=bootstrap, settings=login, stays_s=None),
            Member(recorder, 5, list(TOPICS), bootstrap=bootstrap, settings=eager, stays_s=stays_s),
            EndWatcher(recorder, 6, PLACES, bootstrap=bootstrap, settings=eager, pause_s=0.1),
        ]
        changes = topic_changes(plan.seed, plan.seconds, plan.pace.apart[0] / 2)
        self._topics = PassingTopics(recorder, changes, settings={"bootstrap.servers": bootstrap, **login})
        for thread in (*self._readers, *self._producers, self._topics):
            thread.start()

    # -- rounds ------------------------------------------------------------------------------------------------

    @property
    def _gone(self) -> float:
        return time.monotonic() - self._began

    def _play_all(self, rounds: tuple[Round, ...]) -> None:
        with_metadata = self._metadata is not None
        more = extras(self.plan.seed, rounds, with_disks=self._disks is not None, with_metadata=with_metadata)
        for number, (planned, besides) in enumerate(zip(rounds, more, strict=True), 1):
            self._rest(planned.at_s)
            if self._gone >= self.plan.seconds or self._violated():
                return
            name = planned.name + besides.name
            self._say(f"{self._gone:7.1f} s  round {number}: {name}")
            self.recorder.take_pause()
            self._play(planned, besides)
            healed = self._heal(name)
            pause = self.recorder.take_pause()
            where = "" if pause.place is None else place_name(pause.place)
            self._results.append(RoundResult(name=name, pause_s=pause.seconds, pause_place=where, heal_s=healed))
            if healed is None:
                return
        self._rest(self.plan.seconds)

    def _rest(self, until_s: float) -> None:
        """To the time that is planned, or for a moment of calm if that is over; a violation ends it."""
        until_s = max(until_s, self._gone + self.plan.calm_s)
        while self._gone < min(until_s, self.plan.seconds) and not self._violated():
            self._tick()
            time.sleep(0.1)

    def _play(self, planned: Round, besides: Extras) -> None:
        began = time.monotonic()
        waiting: list[tuple[float, int, Steps]] = [
            (began + fault.after_s, number, self._faults.steps(fault)) for number, fault in enumerate(planned.faults)
        ]
        found, disk = self.recorder.found, besides.disk
        # No fault of the embedded store takes it away for as long as that of an ensemble does.
        more_s = 0 if self._ensemble is None else max(fault.lasts_s for fault in planned.faults)
        if besides.metadata is not None and self._metadata is not None:
            steps = self._metadata.steps(besides.metadata, found)
            waiting.append((began + besides.metadata.after_s, len(waiting), steps))
        if besides.cordon is not None:
            steps = cordon_steps(besides.cordon, self.brokers, self._cordons, found, more_s=more_s)
            waiting.append((began + besides.cordon.after_s, len(waiting), steps))
        if disk is not None and self._disks is not None:
            may_go = others_may_go(planned)
            steps = self._disks.steps(disk, self.brokers, found, others_may_go=may_go, more_s=more_s)
            waiting.append((began + disk.after_s, len(waiting), steps))
        heapq.heapify(waiting)
        while waiting:
            due, number, steps = heapq.heappop(waiting)
            while (left := due - time.monotonic()) > 0:
                self._tick()
                time.sleep(min(left, 0.1))
            for pause_s in steps:
                heapq.heappush(waiting, (time.monotonic() + pause_s, number, steps))
                break

    def _heal(self, name: str) -> float | None:
        """Until all is as before; the seconds it took, None if it took too long."""
        began, began_ns = time.monotonic(), time.monotonic_ns()

        def healed() -> bool:
            whole = self._ensemble is None or self._ensemble.is_whole
            return whole and self._view_is_full(list(TOPICS)) and not self.recorder.without_ack_since(began_ns)

        is_over = self._wait(lambda: healed() or self._violated(), f"the cluster to heal after: {name}", HEAL_S)
        took_s = time.monotonic() - began
        self._replace_those_that_wait_for_themselves()
        return took_s if is_over and not self._violated() else None

    def _view_is_full(self, topics: list[str]) -> bool:
        """Every broker answers, they agree on the controller, and all replicas are in sync for each of them."""
        controllers = set()
        for broker in self.brokers.ids:
            view = self.brokers.view(broker, topics)
            if view is None or len(view.brokers) < len(self.brokers.ids):
                return False
            if view.under_replicated or len(view.topics) < len(topics):
                return False
            controllers.add(view.controller_id)
        return len(controllers) == 1 and None not in controllers

    def _wait(self, condition: Callable[[], bool], what: str, limit_s: float) -> bool:
        """False, and a violation, if it does not come to be in time."""
        deadline = time.monotonic() + limit_s
        while not condition():
            self._tick()
            if time.monotonic() > deadline:
                self._stuck(what, limit_s)
                return False
            time.sleep(0.05)
        return True

    def _stuck(self, what: str, limit_s: float) -> None:
        self.recorder.found("stuck", f"waited {limit_s:g} s for {what}")
        for broker in self.brokers.ids:
            view = self.brokers.view(broker)
            if view is None:
                self._say(f"broker {broker} does not answer")
            else:
                behind = {place_name(place): view.partitions[place] for place in view.under_replicated}
                self._say(f"broker {broker} sees controller {view.controller_id}, {sorted(view.brokers)}, {behind}")
        silent = self.recorder.without_ack_since(time.monotonic_ns() - 10**10)
        self._say(f"without an ack for 10 s: {', '.join(map(place_name, silent)) or 'none'}")

    def _tick(self) -> None:
        """A broker that ended although no fault wanted that is told and started again."""
        for broker in self.brokers.ids:
            if not self._faults.away[broker] and not self.brokers.runs(broker):
                code = self.brokers.exit_code(broker)
                self.recorder.found("died", f"broker {broker} ended by itself with exit code {code}")
                self.brokers.start(broker)
        for number in () if self._ensemble is None else self._ensemble.ended():
            self.recorder.found("died", f"ZooKeeper server {number} ended by itself")
        self._tick_outside(self._gone, self.recorder)

    def _thread_failed(self, args: threading.ExceptHookArgs) -> None:
        """A client of ours that ends by an error would be one that checks nothing any more."""
        text = "".join(traceback.format_exception(args.exc_type, args.exc_value, args.exc_traceback))
        self.recorder.found("client", f"{args.thread and args.thread.name} ended: {text}")

    def _violated(self) -> bool:
        for violation in self.recorder.violations():
            if violation.text not in self._told:
                self._told.add(violation.text)
                self._say(f"{self._gone:7.1f} s  VIOLATION {violation.kind}: {violation.text}")
        return bool(self._told)

    # -- the end -----------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        found = self.recorder.found
        self._say(f"{self._gone:7.1f} s  the load ends; reading and comparing everything")
        assert self._topics is not None
        self._topics.stop()
        for producer in self._producers:
            producer.stop()
        if not all_ended(self._producers, FLUSH_S, self._tick):
            found("stuck", f"the producers were not done after {FLUSH_S} s")
        self._read_everything()
        all_ended([self._topics], FLUSH_S, self._tick)
        for reader in self._readers:
            reader.stop()
        self._wait_for_readers()
        self._compare_topics()
        self._compare_replicas()
        for text in self.brokers.stop_all():
            found("stuck", text)
        for broker in self.brokers.ids:
            for text in replicas.surprises(self.cluster, broker):
                if self._disks is None or not self._disks.explains(text):
                    found("surprise", text)
            if self._disks is not None:
                for text in self._disks.wrongly_offline(self.brokers.log(broker).read_text(errors="replace")):
                    found("healthy", f"a directory was taken offline with which nothing was wrong: {text}")
        if self._ensemble is not None:
            self._notes.append(self._ensemble.judge(found))

    def _replace_those_that_wait_for_themselves(self) -> None:
        """No broker can do anything for a client that waits for its own lock, and what it would check is checked by
        another one. It is told at the end."""
        for place, reader in enumerate(self._readers):
            if isinstance(reader, Follower) and reader.is_alive() and reader.waits_for_itself():
                self._notes.append(f"{LOCKED}: {reader.name}; another one read everything again")
                self._replaced += 1
                self._readers[place] = another = reader.another()
                another.start()

    def _wait_for_readers(self) -> None:
        """All has been read by now. A reader whose client waits for itself is told, and no violation of a broker's."""
        for limit_s in (LOCK_S, READ_S):
            if all_ended(self._readers, limit_s, self._tick):
                return
            alive = sum(reader.is_alive() for reader in self._readers)
            if alive <= len(waiting_for_ever()) - self._replaced:
                self._notes.append(f"{LOCKED}: {_where(self._readers)}")
                return
        self.recorder.found("stuck", f"the readers did not end within {READ_S} s: {_where(self._readers)}")

    def _read_everything(self) -> None:
        """Until both readers from the beginning and the group are at the ends of the logs."""
        ask = ends_of(self.brokers.bootstrap, PLACES, {**EAGER, **self.brokers.login()})
        ends: dict[Place, int] = {}

        def are_told() -> bool:
            try:
                ends.update(ask())
            except KafkaException as error:  # this client, too, may have to learn who leads
                self.recorder.trouble(f"asking for the ends of the logs: {error.args[0].name()}")
            return bool(ends)

        def all_read() -> bool:
            if self.recorder.behind(ends, (1, 2)):
                self._replace_those_that_wait_for_themselves()
                return False
            return not self.recorder.undelivered()

        if not self._wait(are_told, "the ends of the logs", READ_S):
            return
        if not self._wait(all_read, "everything to be read", READ_S):
            self._say(f"behind: {self.recorder.behind(ends, (1, 2))}; group: {self.recorder.undelivered()}")

    def _compare_topics(self) -> None:
        assert self._topics is not None
        there = self._topics.there

        def right() -> bool:
            views = [self.brokers.view(broker) for broker in self.brokers.ids]
            return all(view is not None and not wrong_topics(there, view.topics) for view in views) and not misplaced()

        def misplaced() -> list[str]:
            view = self.brokers.view(self.brokers.ids[0])
            wanted = view.partitions if view is not None else {}
            return [
                f"broker {broker}: {text}"
                for broker in self.brokers.ids
                if (text := replicas.misplaced(
                    self.cluster, broker, {place_name(place) for place, p in wanted.items() if broker in p.replicas}
                ))
            ]  # fmt: skip

        if not self._wait(right, "topics and directories as they were left", 60):
            views = [self.brokers.view(broker) for broker in self.brokers.ids]
            wrong = [wrong_topics(there, view.topics) for view in views if view is not None]
            self._say(f"topics: {wrong}; directories: {misplaced()}")

    def _compare_replicas(self) -> None:
        def equal() -> bool:
            return not replicas.unequal(self.cluster, self.brokers.ids, PLACES)

        if not self._wait(equal, "replicas that are the same bytes", 60):
            for line in replicas.unequal(self.cluster, self.brokers.ids, PLACES):
                self.recorder.found("unequal", line)

    def _outcome(self, minutes: float) -> Outcome:
        wrong: list[str] = []
        first = self.brokers.ids[0]
        logs = {
            place_name(place): replicas.records_of(replicas.log_bytes(self.cluster, first, place), place, wrong)
            for place in PLACES
        }
        verdict = self.recorder.verdict(logs, wrong)
        self.recorder.close()
        brokers, own = resource.getrusage(resource.RUSAGE_CHILDREN), resource.getrusage(resource.RUSAGE_SELF)
        assert self._topics is not None
        folders = [path.resolve() for path in (self.cluster, *self.cluster.glob("broker-*/log-dir-*"))]
        size = sum(path.stat().st_size for folder in {*folders} for path in folder.rglob("*") if path.is_file())
        return Outcome(
            seed=self.plan.seed,
            command=self.plan.command,
            commit=self.plan.commit,
            network=self._network.description,
            minutes=minutes,
            planned_minutes=self.plan.seconds / 60,
            rounds=tuple(self._results),
            faults={kind.value: count for kind, count in self._faults.counts.items()}
            | ({} if self._disks is None else dict(self._disks.counts))
            | ({} if self._metadata is None else dict(self._metadata.counts))
            | dict(self._cordons),
            kills=self._faults.kills,
            starts=self.brokers.started,
            topics=self._topics.done,
            rebalances=sum(reader.rebalances for reader in self._readers if isinstance(reader, Member)),
            verdict=verdict,
            client_errors=dict(self.recorder.errors),
            broker_cpu_s=brokers.ru_utime + brokers.ru_stime,
            client_cpu_s=own.ru_utime + own.ru_stime,
            disk_mb=size / 1e6,
            memory_mb=own.ru_maxrss / 1024,
            notes=self._notes,
        )


def _broker_settings(pace: Pace, *, with_ensemble: bool) -> dict[str, str]:
    """Defaults, but for a short run, which has no time for a session timeout of 9 s. A session with an ensemble is as
    long as one with a controller: its default is twice that. A start waits for as long as that may be away."""
    milliseconds = int(pace.session_timeout * 1000)
    store = {"zookeeper.session.timeout.ms": str(milliseconds), "zookeeper.connection.timeout.ms": "120000"}
    settings = store if with_ensemble else {}
    if pace.session_timeout == 9:
        return settings
    return settings | {
        "broker.session.timeout.ms": str(milliseconds),
        "broker.heartbeat.interval.ms": str(milliseconds // 4),
    }


def _where(threads: Sequence[threading.Thread]) -> str:
    """Which of them go on, and in which line each is."""
    frames = sys._current_frames()
    going = [(each.name, frames[each.ident]) for each in threads if each.ident in frames]
    return "; ".join(f"{name} in {frame.f_code.co_qualname}, line {frame.f_lineno}" for name, frame in going)
