"""Readers of the small text files: checkpoints, identities, marks, where the controller is, configuration."""

import logging
from contextlib import suppress
from itertools import pairwise
from typing import Any
from uuid import UUID

from holdfast.model.errors import ConfigError, HoldfastError
from tests.fuzz import samples
from tests.fuzz.memory_files import MemoryFiles
from tests.fuzz.reader import Reader, Run

_DIRECTORY = UUID(int=5)
_NUMBERS = (
    b"-1",
    b"0",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775809",
    b"1e9",
    b"1_0",
    b"+1",
    b" 1",
    b"0x1f",
    b"NaN",
    b"Infinity",
    "²".encode(),
    "٣".encode(),
    b"9" * 60,
    b"\xff",
    b"\xc2\x85",
    "\u2028".encode(),
    b"\r\n",
    b"\n",
    b"\n\n",
    b"\0",
    b" ",
)


def _make_checkpoints() -> Run:
    """A checkpoint of offsets or (odd first byte) of leader epochs: read or ignored, never an error. What was read of
    epochs can be asked and cut."""
    from holdfast.storage import checkpoints
    from holdfast.storage.leader_epochs import LeaderEpochs

    logging.getLogger("holdfast.storage").setLevel(logging.CRITICAL)

    def run(data: bytes) -> Any:
        if not data:
            return None
        files: Any = MemoryFiles({"/d/f": bytearray(data[1:])})
        if not data[0] & 1:
            found = checkpoints.read_offsets(files, "/d/f")
            assert all(0 <= offset < 2**63 and 0 <= tp.partition < 2**31 for tp, offset in found.items())
            return len(found) & 7
        epochs = LeaderEpochs.load(files, "/d/f")
        entries = epochs.entries()
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(entries))
        assert all(epoch >= 0 and start >= 0 for epoch, start in entries)
        if entries:
            epoch, start = entries[len(entries) // 2]
            epochs.end_offset(epoch, 2**62)
            epochs.epoch_at(start)
            epochs.truncate_from_start(start)
            epochs.truncate_from_end(start + 1)
            assert LeaderEpochs.load(files, "/d/f").entries() == epochs.entries()
        return len(entries) & 7

    return run


def _checkpoints_corpus() -> list[bytes]:
    found = [
        b"\0" + b"0\n0\n",
        b"\0" + b"0\n2\ntopic 0 17\nother.topic-x 11 9223372036854775807\n",
        b"\1" + b"0\n0\n",
        b"\1" + b"0\n1\n0 0\n",
        b"\1" + b"0\n3\n0 0\n2 1000\n5 123456789012\n",
    ]
    for name in samples.recorded_directories():
        for file, data in samples.recorded_files(name).items():
            if file == "leader-epoch-checkpoint":
                found.append(b"\1" + data)
    for file, data in _dir_files().items():
        if file.endswith("offset-checkpoint"):
            found.append(b"\0" + data)
    return sorted(set(found))


def _dir_files() -> dict[str, bytes]:
    import json

    found = json.loads((samples.DISK / "log_dir_files_after_clean_shutdown.json").read_text())
    return {path.split("/")[-1]: f["text"].encode() for path, f in found.items() if "text" in f}


# -- identities ----------------------------------------------------------------------------------------------------


def _make_identities() -> Run:
    """The first byte chooses: meta.properties, partition.metadata, the mark of a clean shutdown, controller.json, the
    cluster's id, a name in a log directory, the incarnation. Whoever reads them gets a typed refusal or an answer."""
    from holdfast.coordination.embedded import EmbeddedStore
    from holdfast.coordination.lanes import InlineLanes
    from holdfast.storage import checkpoints, dir_scan, incarnation, log_dir, partition_metadata

    logging.getLogger("holdfast.storage").setLevel(logging.CRITICAL)
    path = "/d/f"

    def meta(files: Any) -> Any:
        found = log_dir.read_meta_properties(files, path)
        assert found is not None
        directory = log_dir.LogDir("/d", files, log_dir.InlineQueue())
        directory._check_identity(found, 1, "c")
        return directory.directory_id is None

    def partition(files: Any) -> Any:
        files.contents["/p/partition.metadata"] = files.contents[path]
        return isinstance(partition_metadata.check(files, "/p", None), UUID)

    def mark(files: Any) -> Any:
        epoch = checkpoints.read_clean_shutdown(files, path)[1]
        assert epoch is None or (type(epoch) is int and 0 <= epoch < 2**63)
        return epoch is None

    def controller(files: Any) -> Any:
        files.contents["/m/controller.json"] = files.contents[path]
        where = EmbeddedStore("/m", files=files, lanes=InlineLanes()).active()
        if where is None:
            return None
        assert type(where.broker_id) is int and type(where.host) is str
        assert type(where.port) is int and type(where.epoch) is int
        return where.epoch & 1

    def cluster(files: Any) -> Any:
        files.contents["/m/cluster.id"] = files.contents[path]
        return len(EmbeddedStore("/m", files=files).cluster_id()) & 3

    def name(files: Any) -> Any:
        return dir_scan.classify(bytes(files.contents[path]).decode(errors="surrogateescape")).kind.value

    def boot(files: Any) -> Any:
        files.contents["/d/holdfast.incarnation"] = files.contents[path]
        found = incarnation.read(files, "/d", _DIRECTORY)
        if found is None:
            return None
        assert all(0 <= epoch < 2**63 for epoch in (found.broker_epoch, *found.directories.values()))
        files.contents["/d/holdfast.incarnation"] = bytearray(found.encode())
        assert incarnation.read(files, "/d", _DIRECTORY) == found
        return len(found.directories) & 3

    kinds = (meta, partition, mark, controller, cluster, name, boot)

    def run(data: bytes) -> Any:
        if not data:
            return None
        kind = data[0] % len(kinds)
        return kind, kinds[kind](MemoryFiles({path: bytearray(data[1:])}))

    return run


def _identities_corpus() -> list[bytes]:
    texts: list[tuple[int, bytes]] = [
        (0, b"#\n#Sat Nov 21\nnode.id=1\ndirectory.id=tnD91r3I3aWCxSox1ermYg\nversion=1\ncluster.id=c\n"),
        (0, b"broker.id=1\nversion=0\n"),
        (1, b"version: 0\ntopic_id: tnD91r3I3aWCxSox1ermYg"),
        (2, b'{"version":0,"brokerEpoch":11}'),
        (2, b""),
        (3, b'{"broker_id": 1, "host": "localhost", "port": 9093, "epoch": 3}'),
        (4, b"tnD91r3I3aWCxSox1ermYg\n"),
        *((5, n) for n in (b"t1-0", b"a.b_c-12", b"t-3.0123456789abcdef0123456789abcdef-delete", b"x-1-future")),
        (5, b"t-3.0123456789abcdef0123456789abcdef-stray"),
    ]
    where = f'{{"version": 1, "brokerEpoch": 7, "bootId": "b", "directories": {{"{_DIRECTORY}": 7}}}}'
    texts.append((6, where.encode()))
    texts += [(0, data) for file, data in _dir_files().items() if file == "meta.properties"]
    return [bytes((kind,)) + data for kind, data in texts]


# -- configuration ---------------------------------------------------------------------------------------------------


def _make_config() -> Run:
    """A properties file becomes a configuration, and one for topics, or a ConfigError; a topic's override likewise."""
    from holdfast.model.config import BrokerConfig, LogConfig, read_properties, validate_topic_config

    base = BrokerConfig.parse({"node.id": "1"})

    def run(data: bytes) -> Any:
        if not data:
            return None
        found = read_properties(data[1:].decode(errors="replace"))
        if data[0] & 3:  # by key and value, as topics are configured; parsing all keys is dear
            for key, value in found.items():
                validate_topic_config(key, value)
            LogConfig.of(base, found)
            return len(found) & 3
        config = BrokerConfig.parse(found)
        config.advertised_listeners, config.is_cordoned("/a")
        with suppress(ConfigError):
            config.node_id  # noqa: B018
        LogConfig.of(config, {})
        return len(config.unknown) & 3

    return run


def _config_corpus() -> list[bytes]:
    from holdfast.model.config_keys import KEYS
    from holdfast.model.config_topic_keys import TOPIC_KEYS

    found = [
        b"\0node.id=1\nlisteners=PLAINTEXT://localhost:9092\nlog.dirs=/a,/b\n",
        b"\0# comment\nbroker.id: 2\nlog.dirs=/a,\\\n  /b\nadvertised.listeners=PLAINTEXT://[::1]:1,PLAINTEXT://h:2\n",
        b"\0node.id=3\ncordoned.log.dirs=*\nlog.dirs=/x\nunknown.key=a\\\\b\n",
    ]
    for name, key in KEYS.items():
        found.append(f"\0{name}={key.default or 1}\n".encode())
    for name in TOPIC_KEYS:
        values = ("1", "-1", "true", "delete,compact", "lz4", "CreateTime")
        found += [f"\1{name}={value}\n".encode() for value in values]
    return found


def _make_hosts() -> Run:
    """The text of a host's znode is a broker id, or a ValueError."""
    from holdfast.metadata.broker_ids import decode_host_node, encode_host_node

    def run(data: bytes) -> Any:
        broker_id = decode_host_node(data)
        assert decode_host_node(encode_host_node(broker_id)) == broker_id
        return broker_id & 1

    return run


def _hosts_corpus() -> list[bytes]:
    return [b'{"version":0,"broker.id":10}', b'{"version":1,"broker.id":2147483647,"x":{"y":[1]}}']


READERS = (
    Reader(
        name="hosts",
        reads="the znode of a host of a broker",
        make=_make_hosts,
        corpus=_hosts_corpus,
        refusals=(ValueError,),
        tokens=(*_NUMBERS, b"{", b"[", b'"', b"null", b"true", b": ", b'"version"', b'"broker.id"'),
        max_size=300,
    ),
    Reader(
        name="checkpoints",
        reads="checkpoints of offsets and of leader epochs",
        make=_make_checkpoints,
        corpus=_checkpoints_corpus,
        refusals=(),
        kinds=2,
        prefix=1,
        tokens=_NUMBERS,
        max_size=300,
    ),
    Reader(
        name="identities",
        reads="meta.properties, partition.metadata, marks and incarnations, controller.json, cluster.id, names",
        make=_make_identities,
        corpus=_identities_corpus,
        refusals=(HoldfastError,),
        kinds=7,
        prefix=1,
        tokens=(*_NUMBERS, b"{", b"[", b'"', b"null", b"true", b"=", b": ", b"-delete", b"-0", b"A" * 22),
        max_size=300,
    ),
    Reader(
        name="config",
        reads="server.properties, configurations of topics",
        make=_make_config,
        corpus=_config_corpus,
        refusals=(ConfigError,),
        kinds=4,
        prefix=1,
        tokens=(*_NUMBERS, b"=", b":", b"\\", b"#", b"PLAINTEXT://", b",", b"*", b"true", b"[", b"]"),
        max_size=300,
        memory_base=256 << 10,
    ),
)
