"""Prometheus' text of a Reading (metrics.py): names, labels, help; line by line (metrics_lines.py).

What Kafka has too is named as its JMX exporter names it by the rules that most dashboards go by (the MBean in lower
case, ``kafka_server_replicamanager_offlinereplicacount``); each help text begins with the MBean's own name. What only
we have begins with ``holdfast_``. The counters of traffic are metrics_traffic.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from holdfast.broker.metrics import STATES, DirReading, MoveReading, Reading
from holdfast.broker.metrics_broker import broker_lines, partition_lines, topic_lines
from holdfast.broker.metrics_dirs import dir_count_lines
from holdfast.broker.metrics_lines import gauge, head, labels, line
from holdfast.broker.metrics_names import kafka_name
from holdfast.broker.metrics_process import process_lines
from holdfast.broker.metrics_requests import request_lines
from holdfast.broker.metrics_security import security_lines
from holdfast.broker.metrics_traffic import traffic_lines
from holdfast.metadata.store import CopyState

if TYPE_CHECKING:
    from holdfast.broker.cleaner import CleanerReading

_CLEANER, _CLEANERS = "kafka.log:type=LogCleaner,name=", "kafka.log:type=LogCleanerManager,name="
_MANAGER, _LOGS, _CONTROLLER, _SESSIONS = (
    "kafka.server:type=ReplicaManager,name=",
    "kafka.log:type=LogManager,name=",
    "kafka.controller:type=KafkaController,name=",
    "kafka.server:type=FetchSessionCache,name=",
)
_NUMBERS: Final = (
    (_MANAGER, "PartitionCount", "partitions", "Replicas on this broker, offline ones too."),
    (_MANAGER, "LeaderCount", "leaders", "Partitions that this broker leads."),
    (_MANAGER, "OfflineReplicaCount", "offline_replicas", "Replicas in bad log directories of this live broker."),
    (_MANAGER, "UnderReplicatedPartitions", "under_replicated", "Led here, with replicas that are not in sync."),
    (_MANAGER, "UnderMinIsrPartitionCount", "under_min_isr", "Led here, with too few in sync for acks=all."),
    (_MANAGER, "AtMinIsrPartitionCount", "at_min_isr", "Led here, with just enough in sync for acks=all."),
    (_MANAGER, "PartitionsWithLateTransactionsCount", "late_transactions", "Led here, with one that hangs."),
    (_CONTROLLER, "ActiveControllerCount", "is_controller", "1 on the broker that is the controller."),
    (_CONTROLLER, "ActiveBrokerCount", "active", "Brokers that the controller counts as alive; 0 elsewhere."),
    (_CONTROLLER, "FencedBrokerCount", "fenced", "Registered brokers that it does not; 0 elsewhere."),
    (_CONTROLLER, "PreferredReplicaImbalanceCount", "not_preferred", "Not led by their first replica; 0 elsewhere."),
    (_CONTROLLER, "OfflinePartitionsCount", "offline_partitions", "Partitions without a leader; 0 elsewhere."),
    (_CONTROLLER, "GlobalTopicCount", "topics", "Topics of the cluster; 0 elsewhere."),
    (_CONTROLLER, "GlobalPartitionCount", "all_partitions", "Partitions of the cluster; 0 elsewhere."),
    (_SESSIONS, "NumIncrementalFetchSessions", "fetch_sessions", "Fetch sessions of consumers."),
    (_SESSIONS, "NumIncrementalFetchPartitionsCached", "fetch_session_partitions", "Partitions in all of them."),
)
"""Where Kafka has it, its name there, attribute of Reading, meaning."""


def lines(reading: Reading) -> Iterator[str]:
    """The page without what is of the process, in a fixed order."""
    for where, name, attribute, meaning in _NUMBERS:
        yield from gauge(kafka_name(where + name), f"{where}{name}. {meaning}", [("", getattr(reading, attribute))])
    bad = [(_of(each), each.state == "offline") for each in reading.dirs]
    name = f"{_LOGS}OfflineLogDirectoryCount"
    told = f"{name}. Log directories of this broker that are offline."
    yield from gauge(kafka_name(name), told, [("", sum(is_bad for _, is_bad in bad))])
    name = f"{_LOGS}LogDirectoryOffline"
    yield from gauge(kafka_name(name), f"{name},logDirectory=PATH. 1 while it is offline.", bad)
    if reading.traffic is not None:
        yield from traffic_lines(reading.traffic)
    if reading.requests is not None:
        yield from request_lines(reading.requests)
    if reading.broker is not None:
        yield from broker_lines(reading.broker)
    if reading.security is not None:
        yield from security_lines(reading.security)
    yield from topic_lines(reading.topic_rows)
    yield from partition_lines(reading)
    yield from _dir_lines(reading.dirs)
    yield from dir_count_lines(reading.dirs)
    yield from _move_lines(reading.moves)
    yield from _metadata_lines(reading.metadata_copies)
    if reading.cleaner is not None:
        yield from _cleaner_lines(reading.cleaner)
    name = f"{_SESSIONS}IncrementalFetchSessionEvictions"
    family = f"{kafka_name(name)}_total"
    yield head(family, "counter", f"{name}PerSec. Fetch sessions that lost their slot to another one.")
    yield line(family, "", reading.fetch_session_evictions)
    meaning = "Connections to the listener, of clients and of brokers."
    yield from gauge("holdfast_connections", meaning, [("", reading.connections)])


def _of(directory: DirReading) -> str:
    return labels({"logDirectory": directory.path})


def _dir_lines(dirs: Sequence[DirReading]) -> Iterator[str]:
    yield from gauge(
        "holdfast_log_directory_state",
        "1 for the state of the log directory: online; full: no writes; degraded: slow; silent: no answer; offline.",
        [
            (labels({"logDirectory": each.path, "state": state}), each.state == state)
            for each in dirs
            for state in STATES
        ],
    )
    yield from gauge(
        "holdfast_log_directory_state_since_seconds",
        "When that state began (Unix time).",
        [(_of(each), each.since_ms / 1000) for each in dirs if each.since_ms > 0],
    )
    yield from gauge(
        "holdfast_log_directory_probe_seconds",
        "How long the last probe took: write, sync, read back and remove a small file.",
        [(_of(each), each.probe_ms / 1000) for each in dirs if each.probe_ms is not None],
    )
    yield from gauge(
        "holdfast_log_directory_total_bytes",
        "Size of the file system.",
        [(_of(each), each.total_bytes) for each in dirs if each.total_bytes is not None],
    )
    yield from gauge(
        "holdfast_log_directory_usable_bytes",
        "Room that is left on it.",
        [(_of(each), each.usable_bytes) for each in dirs if each.usable_bytes is not None],
    )
    yield from gauge(
        "holdfast_log_directory_replicas",
        "Replicas in it, also while it is offline.",
        [(_of(each), each.replicas) for each in dirs],
    )


def _move_lines(moves: Sequence[MoveReading]) -> Iterator[str]:
    yield from gauge(
        "holdfast_moves", "Replicas on their way to another log directory of this broker.", [("", len(moves))]
    )
    marked = []
    for move in moves:
        topic, partition = move.topic_partition
        of_move = {"topic": topic, "partition": str(partition), "from": move.source, "to": move.target}
        marked.append((labels(of_move), move))
        yield ""
    lags = [(each, move.lag) for each, move in marked]
    yield from gauge("holdfast_move_lag", "Records that the moving copy has not got yet.", lags)
    rates = [(each, move.bytes_per_s) for each, move in marked]
    yield from gauge("holdfast_move_bytes_per_second", "How fast it is copied.", rates)


def _cleaner_lines(reading: CleanerReading) -> Iterator[str]:
    for where, name, value, meaning in (
        (_CLEANER, "cleaner-recopy-percent", reading.recopy_percent, "What stayed of the bytes, last time."),
        (_CLEANER, "max-clean-time-secs", reading.last_clean_s, "How long the last cleaning of a log took."),
        (_CLEANER, "max-buffer-utilization-percent", reading.buffer_percent, "How full of keys its memory was."),
        (_CLEANERS, "max-dirty-percent", reading.max_dirty_percent, "Of the dirtiest compacted log, when last looked."),
    ):
        yield from gauge(kafka_name(where + name), f"{where}{name}. {meaning}", [("", value)])
    for number, name, meaning in (
        (1, "uncleanable-partitions-count", "Logs that cannot be cleaned: their records are damaged."),
        (2, "uncleanable-bytes", "Their bytes that would be cleaned."),
    ):
        yield from gauge(
            kafka_name(_CLEANERS + name),
            f"{_CLEANERS}{name},logDirectory=PATH. {meaning}",
            [(labels({"logDirectory": each[0]}), float(each[number])) for each in reading.uncleanable],
        )


def _metadata_lines(copies: tuple[CopyState, ...]) -> Iterator[str]:
    """Why a copy is left out is in the controller's log: a reason has no place in a label, where each would be a series
    of its own."""
    yield from gauge(
        "holdfast_metadata_copy_good",
        "1 for a copy of the metadata that every decision is on, 0 for one that is left out; from the controller only.",
        [(labels({"directory": copy.path}), copy.is_good) for copy in copies],
    )
    yield from gauge(
        "holdfast_metadata_decisions_wait",
        "1 while a decision waits since no copy of the metadata has answered for a while; 0 elsewhere.",
        [("", any(not copy.answers for copy in copies))],
    )


def text(reading: Reading) -> bytes:
    """A whole page at once: not for the event loop."""
    return "".join((*lines(reading), *process_lines())).encode()
