"""Replays requests that were recorded with Apache Kafka 4.3.0, and says where our answers differ.

Owns what may differ always (ids, times, ports, texts, order of sets): ``settled`` takes it out of both answers before
they are compared. Everything else is a difference, named by its path in the answer; test_golden_wire.py has the
table of those that stay. A text where Kafka has none is no difference: our errors always say what was expected.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from holdfast.broker.entity import build
from holdfast.protocol.apis import INTERNAL, SPOKEN, request_type
from holdfast.protocol.framing import (
    decode_request,
    decode_response,
    encode_body,
    encode_request,
    parse_request_header,
    parse_response_header,
)
from holdfast.records.batch import HEADER_SIZE, crc_ok, iter_headers, stamp_crc
from holdfast.testing import Cluster
from tests.compat import transactional

GOLDEN = Path(__file__).parents[1] / "golden/wire/4.3.0"
RECORDED_AT_MS = 1795228307616
"""The time of the records in the recordings; ours are of the time of the test."""
ANSWER_TIMEOUT_S = 8.0
SETTINGS = {
    "default.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "num.io.threads": "4",
}
_TIMES = struct.Struct(">qq")
_TIMES_AT, _PRODUCER_AT, _SEQUENCE_AT = 27, 43, 53

FILES = (
    "api_versions", "protocol_errors", "create_topics", "create_partitions", "delete_topics", "metadata", "produce",
    "fetch", "list_offsets", "configs", "log_dirs", "groups", "delete_records", "reassign_elect", "transactions",
    "cluster_security",
)  # fmt: skip
BROKER_OF = {
    "fetch: not leader v12 (broker 3 follows t1-0)": 3,
    "fetch: not leader v11: a follower may serve v11+": 3,
    "fetch: not leader v10": 3,
    "fetch: replica not here v12 (lat is on 1 only)": 2,
    "list_offsets: same from a follower": 3,
    "groups: heartbeat at a broker that is not the coordinator": 2,
    "groups: DescribeGroups at another broker": 2,
}
"""Where a case was sent, if not to broker 1."""
PATIENT = (
    "metadata: auto creation, 1 s later", "groups: FindCoordinator v0 group, now there", "transactions: and then",
    "transactions: AddOffsetsToTxn",
    "transactions: after commit: OffsetFetch require_stable", "transactions: EndTxn v5 (new id and epoch come back)",
    "transactions: read_committed with an aborted transaction in it",
)  # fmt: skip
"""What may take a moment."""
ELSEWHERE = frozenset({
    "produce: compression gzip but plain bytes", "produce: count larger than records",
    "produce: count smaller than records", "produce: record length wrong", "produce: header with null key",
    "produce: mixed good, unknown topic, same partition twice",
})  # fmt: skip
"""Batches that Kafka does not take and we do: into a topic of their own, so that later offsets stay comparable."""
T1, TWIN = b"t1", b"x1"

Case = dict[str, Any]
Differences = dict[tuple[str, str], tuple[Any, Any]]
"""(case, path) -> (Kafka's, ours)"""

API_NAMES = frozenset(key.name.lower() for key in (*SPOKEN, *INTERNAL))
CLOSED = "connection closed by broker"
SILENT = "no answer"
NOT_EXPECTED = "(none expected)"


def recording(name: str) -> list[Case]:
    """The cases of one file; names that come twice get a number."""
    cases: list[Case] = json.loads((GOLDEN / f"{name}.json").read_text())
    seen: dict[str, int] = {}
    for case in cases:
        case["file"] = name
        count = seen[case["name"]] = seen.get(case["name"], 0) + 1
        if count > 1:
            case["name"] = f"{case['name']} ({count})"
        case["id"] = f"{name}: {case['name']}"
    return cases


class Connection:
    """One plain socket to a broker."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=ANSWER_TIMEOUT_S)

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def receive(self, timeout_s: float = ANSWER_TIMEOUT_S) -> bytes | str:
        """One frame without its size, CLOSED or SILENT."""
        self.socket.settimeout(timeout_s)
        try:
            size = self._exactly(4)
            return self._exactly(int.from_bytes(size, "big")) if size else CLOSED
        except TimeoutError:
            return SILENT
        except ConnectionResetError:
            return CLOSED

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                return b""
            data += part
        return data

    def finish(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.socket.close()


class Replay:
    """A running cluster that is asked what Kafka was asked; keeps what in the recording stands for what of ours."""

    def __init__(self, cluster: Cluster) -> None:
        self.addresses = cluster.addresses()
        self.shift_ms = int(time.time() * 1000) - RECORDED_AT_MS
        self.strings: dict[str, str] = {}
        """Member ids, the id of the cluster."""
        self.paths = {f"/kafka/n1/d{i}": str(cluster.log_dir(1, i + 1)) for i in range(2)}
        self.topic_ids: dict[UUID, UUID] = {}
        self.producer_ids: dict[int, int] = {}
        self.session_ids: dict[int, int] = {}
        """Of fetch sessions, which are random there and here."""
        self.coordinator: int | None = None
        """The broker that stands for the recording's coordinator, which was broker 1."""
        self.transaction_coordinator: int | None = None
        self.differences: Differences = {}
        self.unspoken: dict[str, set[str]] = {}
        """APIs without an answer of ours -> the outcomes of their cases."""
        self.texts: dict[str, tuple[set[str], set[str]]] = {}
        """Case -> texts of errors that Kafka says and we do not, and all that we say."""
        self.not_advertised: set[int] = set()
        self.compared = dict.fromkeys(FILES, 0)
        self._kept: Connection | None = None

    def connect(self, broker: int = 1) -> Connection:
        """A new connection."""
        return Connection(self.addresses[broker - 1])

    def run_all(self) -> None:
        """Every file, in the order of the recording."""
        for name in FILES:
            for case in recording(name):
                if "request_hex" in case and wanted(case):
                    self.run(case)

    def run(self, case: Case) -> None:
        """Ask ``case`` and note what differs."""
        name = case["id"]
        if name == "produce: compression gzip but plain bytes":
            (create,) = (c for c in recording("create_topics") if c["name"] == "ok: t1 by assignment")
            self._ask(create, 1, (T1, TWIN))
        if name == "produce: duplicate far behind: seq 0 after seq 8":
            self._fill_sequences()
        if name == "delete_topics: by id":
            self._learn_topic(case["response"]["responses"][0])
        broker = BROKER_OF.get(name, 1)
        if case["file"] == "groups" and self.coordinator is not None:
            broker = self.coordinator if broker == 1 else self.coordinator % len(self.addresses) + 1
        if case["file"] == "transactions":
            broker = self._transaction_broker(case)
        frame = self._ask(case, broker, (T1, TWIN) if name in ELSEWHERE else None)
        deadline = time.monotonic() + 10
        while name in PATIENT and time.monotonic() < deadline and any(self._compared(case, frame)):
            time.sleep(0.05)
            frame = self._ask(case, broker, None)
        if name == "produce: mixed good, unknown topic, same partition twice":
            self._append_once()
        self.compared[case["file"]] += 1
        self.differences |= {(name, path): pair for path, pair in self._compared(case, frame)}

    def _ask(self, case: Case, broker: int, renamed: tuple[bytes, bytes] | None) -> bytes | str:
        request = self.request(case)
        if renamed is not None:
            assert request.count(renamed[0]) == 1
            request = request.replace(*renamed)
        connection = self._kept or self.connect(broker)
        self._kept = None
        connection.send(len(request).to_bytes(4, "big") + request)
        if case.get("response") == NOT_EXPECTED:
            self._kept = connection  # the next case goes over it, and tells whether there was an answer
            return NOT_EXPECTED
        silent = str(case.get("outcome", "")).startswith(SILENT)
        frame = connection.receive(0.3 if silent else ANSWER_TIMEOUT_S)
        connection.close()
        if renamed is not None and isinstance(frame, bytes):
            frame = frame.replace(renamed[1], renamed[0])
        return frame

    def _transaction_broker(self, case: Case) -> int:
        if self.transaction_coordinator is None:
            self.transaction_coordinator = transactional.coordinator(self._answer)
        if case["name"] == "at a broker that is not the coordinator":
            return self.transaction_coordinator % len(self.addresses) + 1
        if case["api"] in transactional.OF_COORDINATOR:
            return self.transaction_coordinator
        if case["name"] == "transactional produce to a partition not added (v9)":
            return transactional.leader(self._answer, "auto2")
        return self.coordinator or 1 if case["api"] in transactional.OF_GROUP else 1

    def _fill_sequences(self) -> None:
        """Sequences 2 to 8, which stand in the recording only as a note."""
        (case,) = (c for c in recording("produce") if c["name"] == "idempotent seq 1")
        for sequence in range(2, 9):
            request = bytearray(self.request(case))
            batch = request.index(bytes(self._batches(next(_record_sets(case["request"])))))
            struct.pack_into(">i", request, batch + _SEQUENCE_AT, sequence)
            stamp_crc(request, batch)
            self._answer(len(request).to_bytes(4, "big") + request)

    def _append_once(self) -> None:
        """To t1 what Kafka took of a request that has the same partition twice."""
        (case,) = (c for c in recording("produce") if c["name"] == "acks 0, ok: no answer")
        request = self.request(case)
        body = parse_request_header(request).body_offset
        entity = dataclasses.replace(decode_request(0, case["version"], request[body:]), acks=-1)
        self._answer(encode_request(0, case["version"], 1, "golden", entity))

    def _answer(self, frame: bytes) -> bytes:
        connection = self.connect()
        connection.send(frame)
        answer = connection.receive()
        connection.close()
        assert isinstance(answer, bytes), answer
        return answer

    def _learn_topic(self, recorded: Any) -> None:
        """Our id of a topic that the recording knows from elsewhere."""
        asked = build(request_type(3, 12), {"topics": [{"name": recorded["name"]}]})
        frame = self._answer(encode_request(3, 12, 1, "golden", asked))
        _, start = parse_response_header(3, 12, frame)
        self.topic_ids[UUID(recorded["topic_id"])] = decode_response(3, 12, frame[start:]).topics[0].topic_id

    def request(self, case: Case) -> bytes:
        """The recorded request with our ids and our time."""
        raw = bytearray.fromhex(case["request_hex"])
        for theirs, ours in self.topic_ids.items():
            raw = raw.replace(theirs.bytes, ours.bytes)
        if case["api"] == "fetch" and case.get("request", {}).get("session_id") in self.session_ids:
            theirs = case["request"]["session_id"]
            assert raw.count(struct.pack(">i", theirs)) == 1
            raw = raw.replace(struct.pack(">i", theirs), struct.pack(">i", self.session_ids[theirs]))
        for batch in _record_sets(case.get("request", {})) if case["api"] == "produce" else ():
            if batch:
                raw = raw.replace(batch, self._batches(batch))
        if case["api"] == "list_offsets":
            for stamp in _values(case["request"], "timestamp"):
                if stamp > 1_000_000_000_000:
                    raw = raw.replace(struct.pack(">q", stamp), struct.pack(">q", stamp + self.shift_ms))
        if case["file"] == "transactions" and case["api"] in API_NAMES - {"produce", "fetch"}:
            return transactional.with_producer_ids(bytes(raw), self.producer_ids)
        if self.strings and case["file"] == "groups":
            return self._with_our_strings(bytes(raw), case, self.strings)
        if case["api"] == "alter_replica_log_dirs":
            return self._with_our_strings(bytes(raw), case, self.paths)
        return bytes(raw)

    def _batches(self, data: bytes) -> bytearray:
        """Batches of the test's own time and producer ids, with a right CRC where it was right."""
        out = bytearray(data)
        for position, header in iter_headers(data) if data[16:17] == b"\2" else ():
            good = crc_ok(data, position, header)
            first, last = _TIMES.unpack_from(data, position + _TIMES_AT)
            if first > 0:
                _TIMES.pack_into(
                    out, position + _TIMES_AT, first + self.shift_ms, last + self.shift_ms if last > 0 else last
                )
            if header.producer_id in self.producer_ids:
                struct.pack_into(">q", out, position + _PRODUCER_AT, self.producer_ids[header.producer_id])
            if good:
                stamp_crc(out, position)
        return out

    def _with_our_strings(self, raw: bytes, case: Case, strings: dict[str, str]) -> bytes:
        header = parse_request_header(raw)
        entity = decode_request(header.api_key, header.api_version, raw[header.body_offset :])
        return raw[: header.body_offset] + encode_body(_replaced(entity, strings))

    def _compared(self, case: Case, frame: bytes | str) -> Iterator[tuple[str, tuple[Any, Any]]]:
        if frame == NOT_EXPECTED:
            return
        if case["api"] not in API_NAMES:
            self.unspoken.setdefault(case["api"], set()).add(frame if isinstance(frame, str) else "an answer")
            return
        if "response_hex" not in case:
            theirs: Any = SILENT if case["outcome"].startswith(SILENT) else case["outcome"]
            ours: Any = frame if isinstance(frame, str) else self._entity(case, frame)
            if ours != theirs:
                yield "", (theirs, ours)
            return
        if isinstance(frame, str):
            yield "", ("an answer", frame)
            return
        theirs, ours = _plain(self._decode(case, bytes.fromhex(case["response_hex"]))), self._entity(case, frame)
        said = {text for text in _values(ours, "error_message") if text}
        other = {text for text in _values(theirs, "error_message") if text} - said
        if other:
            self.texts[case["id"]] = other, said
        if case["api"] == "api_versions":
            self.not_advertised |= {k["api_key"] for k in theirs["api_keys"]} - {k["api_key"] for k in ours["api_keys"]}
        if case["name"].startswith("auto creation"):
            theirs, ours = _unplaced(theirs), _unplaced(ours)
        if case["api"] == "describe_log_dirs":
            theirs, ours = _by_replica(theirs), _by_replica(ours)
        yield from _differences(settled(theirs), settled(ours))

    def _entity(self, case: Case, frame: bytes) -> Any:
        """Our answer in the recording's times and ids; learns ids from it."""
        ours = _plain(self._decode(case, frame))
        if "response_hex" in case:
            self._learn(_plain(self._decode(case, bytes.fromhex(case["response_hex"]))), ours)
        if case["api"] == "find_coordinator":
            self._recognize_coordinator(ours)
        back = {mine: theirs for theirs, mine in self.strings.items()}
        return _shifted(_replaced(ours, back), -self.shift_ms)

    @staticmethod
    def _decode(case: Case, frame: bytes) -> Any:
        version = 0 if case["name"] == "ApiVersions v99 (unsupported)" else case["version"]
        _, start = parse_response_header(case["api_key"], version, frame)
        return decode_response(case["api_key"], version, frame[start:])

    def _recognize_coordinator(self, answer: Any) -> None:
        for found in answer.get("coordinators", [answer]):
            if found["node_id"] >= 0:
                if self.coordinator is None:
                    self.coordinator = found["node_id"]
                found["node_id"] = 1 if found["node_id"] == self.coordinator else found["node_id"]

    def _learn(self, theirs: Any, ours: Any) -> None:
        if not isinstance(theirs, dict):
            return
        for key in ("member_id", "leader"):
            if theirs.get(key) and isinstance(ours.get(key), str) and ours[key]:
                self.strings.setdefault(theirs[key], ours[key])
        if ours.get("producer_id", -1) >= 0 and theirs.get("producer_id", -1) >= 0:
            self.producer_ids[theirs["producer_id"]] = ours["producer_id"]
        if ours.get("session_id", 0) > 0 and theirs.get("session_id", 0) > 0:
            self.session_ids[theirs["session_id"]] = ours["session_id"]
        for key, elements in theirs.items():
            if not isinstance(elements, list) or not isinstance(ours.get(key), list):
                continue
            named = {e["name"]: e for e in ours[key] if isinstance(e, dict) and "name" in e}
            for e in elements:
                if isinstance(e, dict) and e.get("topic_id") and e.get("name") in named:
                    mine = named[e["name"]].get("topic_id")
                    if mine and UUID(mine).int and UUID(e["topic_id"]).int:
                        self.topic_ids[UUID(e["topic_id"])] = UUID(mine)


def _record_sets(request: Any) -> Iterator[bytes]:
    for topic in request.get("topic_data", ()):
        for partition in topic["partition_data"]:
            if partition["records"] is not None:
                yield bytes.fromhex(partition["records"]["hex"])


def _values(value: Any, key: str) -> Iterator[Any]:
    if isinstance(value, dict) and key in value:
        yield value[key]
    for v in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _values(v, key)


def _replaced(value: Any, strings: dict[str, str]) -> Any:
    """The same with some strings replaced by others, in entities and in plain values."""
    if isinstance(value, str):
        return strings.get(value, value)
    if isinstance(value, (tuple, list)):
        return type(value)(_replaced(v, strings) for v in value)
    if isinstance(value, dict):
        return {k: _replaced(v, strings) for k, v in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(
            value, **{f.name: _replaced(getattr(value, f.name), strings) for f in dataclasses.fields(value)}
        )
    return value


def _plain(value: Any) -> Any:
    """A kio entity as dictionaries and lists. Errors are their numbers, durations and times milliseconds."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    if isinstance(value, Enum):
        return int(value.value)
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    return str(value) if isinstance(value, UUID) else value


def _shifted(value: Any, by_ms: int) -> Any:
    if isinstance(value, dict):
        return {k: v + by_ms if k == "timestamp" and v > 0 else _shifted(v, by_ms) for k, v in value.items()}
    return [_shifted(v, by_ms) for v in value] if isinstance(value, list) else value


def wanted(case: Case) -> bool:
    """False for what was asked of a listener of controllers."""
    if case["file"] == "cluster_security":
        spoken = (
            "describe_quorum", "describe_acls", "update_features", "describe_client_quotas", "alter_client_quotas",
            "describe_user_scram_credentials", "alter_user_scram_credentials",
        )  # fmt: skip
        return case["api"] in spoken or case["name"].endswith("wrong cluster id")
    return not case["name"].endswith("on the controller listener")


def _by_replica(answer: Any) -> Any:
    """DescribeLogDirs without where replicas are: which there are, of topics whose placement was asked for."""
    replicas = {}
    for directory in answer["results"]:
        for topic in directory.pop("topics"):
            if topic["name"] in ("t1", "c1", "m1", "min3", "lat", "tslim", "on2"):
                replicas |= {f"{topic['name']}-{p['partition_index']}": p for p in topic["partitions"]}
    return answer | replicas


def _unplaced(answer: Any) -> Any:
    """Metadata of a topic that the controller placed: how many replicas, not which."""
    for topic in answer["topics"]:
        for partition in topic["partitions"]:
            partition["leader_id"] = partition["leader_id"] >= 0
            for nodes in ("replica_nodes", "isr_nodes"):
                partition[nodes] = len(partition[nodes])
    return answer


IGNORED = frozenset({
    "throttle_time", "cluster_id", "controller_id", "port", "client_host", "finalized_features_epoch",
})  # fmt: skip
"""Fields whose values say nothing: times, ids, addresses."""
PRESENCE = frozenset({
    "error_message", "batch_index_error_message", "topic_id", "log_append_time", "member_id", "leader", "log_dir",
    "session_id", "partition_size", "total_bytes", "usable_bytes", "producer_id", "last_timestamp",
    "transaction_start_time_ms",
})  # fmt: skip
"""Fields of which only counts whether they have a value."""
TEXTS = ("error_message", "batch_index_error_message")
SETS = {"configs": "name", "api_keys": "api_key"}
"""Lists of which only what we have is compared, and what identifies their elements."""
_IDENTITIES = ("name", "topic", "topic_name", "partition_index", "partition", "index", "node_id", "api_key", "group_id",
               "broker_id", "resource_name", "log_dir", "member_id", "producer_epoch", "last_sequence",
               "current_txn_start_offset")  # fmt: skip


def settled(value: Any, key: str = "") -> Any:
    """Without what may differ always."""
    if isinstance(value, dict):
        if value.get("name") == "log.dirs":
            value = {k: v for k, v in value.items() if k not in ("value", "synonyms")}
        return {k: settled(v, k) for k, v in value.items() if k not in IGNORED}
    if isinstance(value, list):
        elements = [settled(v) for v in value]
        if elements and isinstance(elements[0], dict):
            elements.sort(key=lambda e: [repr(e[i]) for i in _IDENTITIES if i in e])
        return elements
    if key in PRESENCE:
        nothing = value is None or value in ("", -1, str(UUID(int=0))) or (value == 0 and key != "producer_id")
        return f"no {key}" if nothing else f"some {key}"
    if key == "records" and isinstance(value, bytes):
        return _batches_told(value)
    return value


def _batches_told(data: bytes) -> list[str]:
    """Batches as far as brokers agree on them: without time, CRC and producer id."""
    told = []
    for position, h in iter_headers(data):
        payload = data[position + HEADER_SIZE : position + h.size].hex()
        told.append(
            f"{h.base_offset}+{h.last_offset_delta} epoch {h.partition_leader_epoch} attributes {h.attributes} "
            f"producer {h.producer_id >= 0} {h.producer_epoch} {h.base_sequence}: {h.record_count} records {payload}"
        )
    return told


def _differences(theirs: Any, ours: Any, path: str = "") -> Iterator[tuple[str, tuple[Any, Any]]]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in theirs.keys() | ours.keys():
            inner = f"{path}.{key}" if path else key
            yield from _differences(theirs.get(key, "(absent)"), ours.get(key, "(absent)"), inner)
    elif isinstance(theirs, list) and isinstance(ours, list) and path.rpartition(".")[2] in SETS:
        identity = SETS[path.rpartition(".")[2]]
        of_theirs = {e[identity]: e for e in theirs}
        for mine in ours:
            name = mine[identity]
            yield from _differences(of_theirs.get(name, "(absent)"), mine, f"{path}[{name}]")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, (a, b) in enumerate(zip(theirs, ours, strict=True)):
            yield from _differences(a, b, f"{path}[{index}]")
    elif theirs != ours and not (path.rpartition(".")[2] in TEXTS and str(theirs).startswith("no ")):
        yield path, (theirs, ours)


@pytest.fixture(scope="session")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replay]:
    """All recordings, replayed in order with a cluster of their own that has the recordings' settings."""
    with Cluster(data_dir=tmp_path_factory.mktemp("golden"), settings=SETTINGS) as running:
        replayed = Replay(running)
        replayed.run_all()
        yield replayed


@pytest.fixture(scope="session")
def recorded() -> Callable[[str], list[Case]]:
    """Reads the cases of one file."""
    return recording
