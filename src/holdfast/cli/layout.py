"""Where ``holdfast up`` keeps what in its data directory, and each node's properties file.

    DIR/pids.json               {"1": pid, ...}
    DIR/endpoints.json          where it is reached, while it runs: cli/endpoints.py
    DIR/metadata/               the embedded metadata store, shared by all nodes
    DIR/metadata-2/             its second copy, unless --metadata-dir has it on another disk
    DIR/broker-N.properties     Kafka's keys; what a person adds to it stays
    DIR/broker-N.log            what the node logs
    DIR/broker-N/log-dir-K      its log directories

A data directory that was moved or copied is taken over: cli/relocation.py.

Owns these names and the merge of an existing file with the options of a later start. Starts nothing.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.cli.relocation import (
    METADATA_KEYS,
    RelocationError,
    emptied,
    home_of,
    paths_of,
    refuse_shared,
    taken_over,
)
from holdfast.cli.up_address import Address
from holdfast.cli.up_ports import MAX_PORT, IsFree, PortError, all_free, brokers_port, certificates_port, metrics_port
from holdfast.cli.up_secure import BY_CERTIFICATE, BY_PASSWORD, OWNED, STORE_TOO, broker_values, is_secured
from holdfast.cli.up_store import ChosenStore, ChosenStoreError, store_of
from holdfast.model.config import BrokerConfig, key_of, read_properties
from holdfast.model.config_notes import nearest_key
from holdfast.model.errors import ConfigError
from holdfast.model.listeners import (
    ADVERTISED,
    CONTROL_PLANE,
    INTER_BROKER,
    INTER_BROKER_PROTOCOL,
    LISTENERS,
    OPERATORS,
    PROTOCOL_MAP,
    Endpoint,
)

DEFAULT_BROKERS = 3
DEFAULT_LOG_DIRS = 2
DEFAULT_PORT = 9092
CLIENTS, BROKERS = "PLAINTEXT", "INTERNAL"
"""The listeners: that of clients, and that of the other brokers, which no client is told."""
MAX_COPIES = 3
OF_COORDINATORS = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
"""Said by the file, as a topic of coordinators waits for so many brokers then: one that is slow at the first start
would have none of it for good."""
COPIES, IN_SYNC = "default.replication.factor", "min.insync.replicas"
REBALANCE_DELAY = "group.initial.rebalance.delay.ms"
"""Spares a rebalance where many members start at once, and costs the one at a desk three seconds."""
OWNED_KEYS = frozenset(
    (
        "node.id", "broker.id", LISTENERS, ADVERTISED, PROTOCOL_MAP, INTER_BROKER, INTER_BROKER_PROTOCOL,
        CONTROL_PLANE, OPERATORS, "log.dir", "log.dirs", *METADATA_KEYS, "metrics.port",
        "metadata.store", "zookeeper.connect", "log.file",
    )
)  # fmt: skip
"""Keys whose values follow from the options of ``up``."""
_FILE = re.compile(r"broker-([1-9][0-9]*)\.properties")


class LayoutError(Exception):
    """The options contradict each other or what the data directory holds; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says; None where it says nothing."""

    brokers: int | None
    log_dirs: int | None
    port: int | None
    settings: Mapping[str, str]
    metrics_port: int | None = None
    """Of broker 1; 0 is none."""
    metadata_dirs: tuple[str, ...] = ()
    """Of the copies of the metadata beside DIR/metadata; none: as it was, or DIR/metadata-2."""
    force: bool = False
    """Start although the log directories of all brokers hold nothing any more."""
    host: str | None = None
    """By which clients reach the brokers."""
    store: str | None = None
    """As --store has it."""
    secure: bool = False
    """A cluster that was secured once stays it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLayout:
    """One broker of the cluster as its properties file has it. ``metrics_port`` 0: it serves no metrics;
    ``brokers_port``: of the listener that clients are not told."""

    broker_id: int
    port: int
    brokers_port: int
    metrics_port: int
    log_dirs: tuple[str, ...]
    properties: Mapping[str, str]
    reach: Address
    between: Address
    """By which other brokers reach it."""
    store: ChosenStore
    certificates_port: int = 0
    """Of the listener for clients that have a certificate; 0: there is none, and nobody logs in at all."""

    @property
    def is_secured(self) -> bool:
        """Whether clients and brokers have to say who they are."""
        return self.certificates_port > 0

    @property
    def address(self) -> str:
        """As clients are told."""
        return f"{self._host}:{self.port}"

    @property
    def certificates_address(self) -> str:
        """As clients with a certificate are told."""
        return f"{self._host}:{self.certificates_port}"

    @property
    def _host(self) -> str:
        return f"[{self.reach.host}]" if ":" in self.reach.host else self.reach.host

    @property
    def listens(self) -> tuple[tuple[str, int], ...]:
        """Where its listeners are bound."""
        more = ((self.reach.bound, self.certificates_port),) if self.is_secured else ()
        return (self.reach.bound, self.port), (self.between.bound, self.brokers_port), *more


def properties_path(data_dir: str, broker_id: int) -> str:
    return os.path.join(data_dir, f"broker-{broker_id}.properties")


def log_path(data_dir: str, broker_id: int) -> str:
    return os.path.join(data_dir, f"broker-{broker_id}.log")


def plan(data_dir: str, options: Options, is_free: IsFree = all_free) -> tuple[list[BrokerLayout], list[str]]:
    """The nodes to run, and warnings. What the directory holds counts where the options say nothing, but for ports that
    are taken."""
    if "," in data_dir:
        raise LayoutError(f"--data-dir {data_dir}: expected a path without a comma, as log.dirs is a list")
    for key in options.settings:
        if key in OWNED_KEYS:
            raise LayoutError(f"--set {key}: expected a key that none of the options of `holdfast up` sets")
        if key_of(key) is None:
            raise LayoutError(f"--set {key}: expected a key of docs/configuration.md{nearest_key(key)}")
    found, warnings = _taken_over(data_dir, _existing(data_dir))
    warnings += _lost(data_dir, found, force=options.force)
    brokers = options.brokers or len(found) or DEFAULT_BROKERS
    if brokers < len(found):
        raise LayoutError(
            f"{data_dir} holds a cluster of {len(found)} brokers: --brokers {brokers} would leave out replicas;"
            f" use --brokers {len(found)} (or more), or another --data-dir"
        )
    if found and brokers > len(found):
        warnings.append(
            f"{data_dir} held {len(found)} brokers: adding {brokers - len(found)} that hold no data yet; topics stay"
            " where they are until `holdfast reassign` moves them"
        )
    port = options.port if options.port is not None else _first_port(found)
    if not 1 <= port <= MAX_PORT - brokers + 1:
        raise LayoutError(f"--port {port} for {brokers} brokers: expected 1 to {MAX_PORT - brokers + 1}")
    reach = _reach(found, options)
    try:
        store = store_of(data_dir, found, options.store, port)
        metrics, moved = metrics_port(
            options.metrics_port, _kept_metrics_port(found, options), port, brokers, reach.bound, is_free
        )
    except ChosenStoreError as e:
        raise LayoutError(f"--store {e}" if options.store is not None else str(e)) from e
    except PortError as e:
        raise LayoutError(str(e)) from e
    warnings += [] if moved is None else [moved]
    between = brokers_port(port, metrics, brokers, _between(reach, store).bound, is_free)
    taken = (port, between, *((metrics,) if metrics else ()))
    secured = _is_secured(found, options, store)
    by_certificate = certificates_port(taken, brokers, reach.bound, is_free) if secured else 0
    if store.port is not None and any(first <= store.port < first + brokers for first in taken):
        raise LayoutError(f"port {store.port} of the ZooKeeper server is that of a broker: expected another --port")
    if options.metadata_dirs and store.connect is not None:
        raise LayoutError(
            f"--metadata-dir {options.metadata_dirs[0]}: expected none: the metadata of {data_dir} is in {store}"
        )
    nodes = []
    for i in range(brokers):
        kept = found.get(i + 1, {})
        dirs = _log_dirs(data_dir, i + 1, kept, options)
        ports = (port + i, between + i, metrics and metrics + i, by_certificate and by_certificate + i)
        kept = {**kept, "metadata.log.dirs": ",".join(_metadata_dirs(data_dir, found.get(1, {}), options))}
        sized = _sized(brokers, found, {**kept, **options.settings})
        more = broker_values(data_dir) if secured else {}
        nodes.append(_node(i + 1, (reach, store), ports, dirs, {**kept, **sized, **more}, options.settings))
    return nodes, warnings


def first_metadata_dirs(data_dir: str) -> tuple[str, ...]:
    """Where a first start in this directory, without options, keeps its metadata."""
    return _metadata_dirs(data_dir, {}, Options(brokers=None, log_dirs=None, port=None, settings={}))


def _metadata_dirs(data_dir: str, kept: Mapping[str, str], options: Options) -> tuple[str, ...]:
    """One list for all brokers."""
    first = os.path.join(data_dir, "metadata")
    there = [path.strip() for path in kept.get("metadata.log.dirs", "").split(",") if path.strip()]
    more = [os.path.abspath(path) for path in options.metadata_dirs] or [path for path in there if path != first]
    return first, *(more or [os.path.join(data_dir, "metadata-2")])


def write(data_dir: str, nodes: Sequence[BrokerLayout]) -> list[str]:
    """Directories and properties files; returns warnings for log directories that cannot be made.

    Such a directory is the broker's matter: it starts with the others and marks this one offline.
    """
    warnings = []
    for path in paths_of(nodes[0].properties, ("metadata.log.dirs",)):
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as e:
            warnings.append(f"metadata directory {path}: {e.strerror}")
    for node in nodes:
        for path in node.log_dirs:
            try:
                os.makedirs(path, exist_ok=True)
            except OSError as e:
                warnings.append(f"log directory {path} of broker {node.broker_id}: {e.strerror}")
        text = "".join(f"{key}={_escaped(value)}\n" for key, value in node.properties.items())
        write_atomically(properties_path(data_dir, node.broker_id), text)
    return warnings


def properties_paths(data_dir: str) -> list[str]:
    """The properties files that are there."""
    return [properties_path(data_dir, broker_id) for broker_id in sorted(_files(data_dir))]


def change(data_dir: str, values: Mapping[str, str | None]) -> list[str]:
    """Give keys of every broker other values, None: have them without it. The files. No broker may run."""
    changed = []
    for broker_id, properties in sorted(_files(data_dir).items()):
        wanted = {**properties, **values}
        text = "".join(f"{key}={_escaped(value)}\n" for key, value in wanted.items() if value is not None)
        write_atomically(properties_path(data_dir, broker_id), text)
        changed.append(properties_path(data_dir, broker_id))
    return changed


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")


def write_atomically(path: str, text: str) -> None:
    """A reader sees the old text or the new one."""
    partial = f"{path}.tmp"
    with open(partial, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(partial, path)


def _existing(data_dir: str) -> dict[int, dict[str, str]]:
    """Properties by broker id; LayoutError when the ids are not 1..N or a file contradicts its name."""
    found = _files(data_dir)
    for broker_id, properties in found.items():
        node_id = properties.get("node.id", properties.get("broker.id"))
        if node_id != str(broker_id):
            path = properties_path(data_dir, broker_id)
            raise LayoutError(f"{path} has node.id={node_id}: expected {broker_id}, as its name says")
    if sorted(found) != list(range(1, len(found) + 1)):
        names = ", ".join(map(str, sorted(found)))
        raise LayoutError(f"{data_dir} holds properties of brokers {names}: expected 1 to {max(found)} without a gap")
    return found


def _files(data_dir: str) -> dict[int, dict[str, str]]:
    """Properties by the broker id that is in the file's name; none in a directory that is gone."""
    found = {}
    for name in os.listdir(data_dir) if os.path.isdir(data_dir) else ():
        match = _FILE.fullmatch(name)
        if match is not None:
            with open(os.path.join(data_dir, name), encoding="utf-8") as file:
                found[int(match[1])] = read_properties(file.read())
    return found


def kept(data_dir: str) -> dict[int, dict[str, str]]:
    """The properties of each broker as they read where the data directory is now. LayoutError when this is a copy, and
    a directory of one is the original's."""
    return _taken_over(data_dir, _files(data_dir))[0]


def _taken_over(data_dir: str, found: Mapping[int, Mapping[str, str]]) -> tuple[dict[int, dict[str, str]], list[str]]:
    """The files as they read where they are now, and what to say when that is another place than before."""
    homes = {home for p in found.values() if (home := home_of(p)) not in (None, data_dir)}
    away = sorted(home for home in homes if home is not None and not _is_same(home, data_dir))
    here = {broker_id: taken_over(properties, data_dir) for broker_id, properties in found.items()}
    try:
        refuse_shared(data_dir, here, {home: _files(home) for home in away})
    except RelocationError as e:
        raise LayoutError(str(e)) from None
    return here, [f"{data_dir} was {home} at its last start: using the log directories in {data_dir}" for home in away]


def _is_same(one: str, other: str) -> bool:
    """Two names of one directory: a link, or a file system that is mounted twice."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _lost(data_dir: str, found: Mapping[int, Mapping[str, str]], *, force: bool) -> list[str]:
    """LayoutError when the brokers ran before and none has anything now; else what single ones have lost."""
    lost = emptied(data_dir, found)
    if lost.all_of_them and not force:
        paths = ", ".join(path for _, paths in sorted(lost.brokers.items()) for path in paths)
        raise LayoutError(
            f"{data_dir} holds the metadata of a cluster, and no log directory of its brokers holds anything: {paths}."
            f" Mount them or bring them back; --force starts without their records; for a new cluster use another"
            " --data-dir"
        )
    return lost.lines()


def _first_port(found: Mapping[int, Mapping[str, str]]) -> int:
    if 1 not in found:
        return DEFAULT_PORT
    try:
        return BrokerConfig.parse(found[1]).listeners[0].port
    except ConfigError as e:
        raise LayoutError(f"broker-1.properties: {e}") from e


def _reach(found: Mapping[int, Mapping[str, str]], options: Options) -> Address:
    """What is asked for, else as it was."""
    host = options.host
    try:
        if host is None and 1 in found:
            told = BrokerConfig.parse(found[1]).listening.advertised
            host = next((each.host for each in told if each.name in (CLIENTS, BY_PASSWORD)), None)
        return Address() if host is None else Address(host=host)
    except (ConfigError, ValueError) as e:
        raise LayoutError(f"--host {e}" if options.host is not None else f"broker-1.properties: {e}") from e


def _kept_metrics_port(found: Mapping[int, Mapping[str, str]], options: Options) -> int | None:
    """What broker 1 had, unless its ports change."""
    if options.port is not None or "metrics.port" not in found.get(1, {}):
        return None
    try:
        return BrokerConfig.parse(found[1]).int("metrics.port")
    except ConfigError as e:
        raise LayoutError(f"broker-1.properties: {e}") from e


def _log_dirs(data_dir: str, broker_id: int, kept: Mapping[str, str], options: Options) -> tuple[str, ...]:
    there = tuple(d.strip() for d in kept.get("log.dirs", "").split(",") if d.strip())
    count = options.log_dirs or len(there) or DEFAULT_LOG_DIRS
    if count < len(there):
        raise LayoutError(
            f"broker {broker_id} in {data_dir} has {len(there)} log directories: --log-dirs {count} would leave out"
            f" replicas; use --log-dirs {len(there)} (or more)"
        )
    more = (os.path.join(data_dir, f"broker-{broker_id}", f"log-dir-{k}") for k in range(len(there) + 1, count + 1))
    return (*there, *more)


def _sized(brokers: int, found: Mapping[int, Mapping[str, str]], told: Mapping[str, str]) -> dict[str, str]:
    """What follows from the number of brokers, where nobody has told otherwise: three copies where there are three
    brokers, two of which have to be there for a write; and that a group's first member does not wait for others.

    A value that an earlier start derived from fewer brokers is derived again. A cluster that was made when these were
    left to the brokers' own defaults keeps them.
    """
    before = str(min(MAX_COPIES, len(found)))
    derived = dict.fromkeys(OF_COORDINATORS, str(min(MAX_COPIES, brokers)))
    if not found or any(COPIES in properties for properties in found.values()):
        derived[COPIES] = str(min(MAX_COPIES, brokers))
    result = {key: value if told.get(key) in (None, before) else told[key] for key, value in derived.items()}
    if COPIES in derived and IN_SYNC not in told and _has_spare(result[COPIES]):
        result[IN_SYNC] = "2"
    if not found and REBALANCE_DELAY not in told:
        result[REBALANCE_DELAY] = "0"
    return result


def _has_spare(copies: str) -> bool:
    """One may be away, and a write is still on two."""
    return copies.isdecimal() and int(copies) >= MAX_COPIES


def _between(reach: Address, store: ChosenStore) -> Address:
    """Where brokers reach each other. What they say is believed: they stay on this machine, unless brokers of others
    can be of them."""
    return reach if store.is_shared else Address()


def _is_secured(found: Mapping[int, Mapping[str, str]], options: Options, store: ChosenStore) -> bool:
    """LayoutError where it is asked for and cannot be."""
    if not options.secure and not any(map(is_secured, found.values())):
        return False
    if store.connect is not None:
        raise LayoutError(f"--store {store}: {STORE_TOO}")
    for key in sorted(OWNED & options.settings.keys()):
        raise LayoutError(f"--set {key}: expected a key that --secure does not set")
    return True


def _listeners(
    reach: tuple[str, str], between: tuple[str, str], ports: tuple[int, int, int, int]
) -> tuple[str, str, str]:
    """(bound, told, protocols). ``reach``, ``between``: where each is bound, and what is told."""
    clients = ((CLIENTS, ports[0]),) if not ports[3] else ((BY_PASSWORD, ports[0]), (BY_CERTIFICATE, ports[3]))
    bound, told = (
        ",".join(
            (
                *(str(Endpoint(name=name, host=reach[which], port=port)) for name, port in clients),
                str(Endpoint(name=BROKERS, host=between[which], port=ports[1])),
            )
        )
        for which in (0, 1)
    )
    protocols = [f"{name}:{name}" for name, _ in clients] + [f"{BROKERS}:{BY_CERTIFICATE if ports[3] else CLIENTS}"]
    return bound, told, ",".join(protocols)


def _node(
    broker_id: int,
    common: tuple[Address, ChosenStore],
    ports: tuple[int, int, int, int],
    log_dirs: tuple[str, ...],
    kept: Mapping[str, str],
    settings: Mapping[str, str],
) -> BrokerLayout:
    """``common``: what all brokers have; ``ports``: for clients, brokers, metrics, and clients with certificates."""
    reach, store = common
    between = _between(reach, store)
    bound, told, protocols = _listeners((reach.bound, reach.host), (between.bound, between.host), ports)
    operators = f"{BY_PASSWORD},{BY_CERTIFICATE}" if ports[3] else CLIENTS if reach.is_loopback else ""
    properties = {
        **kept,
        **store.properties,
        "node.id": str(broker_id),
        LISTENERS: bound,
        ADVERTISED: told,
        PROTOCOL_MAP: protocols,
        INTER_BROKER: BROKERS,
        OPERATORS: operators,
        "log.dirs": ",".join(log_dirs),
        "metrics.port": str(ports[2]),
        **settings,
    }
    for key in ("metadata.log.dir", INTER_BROKER_PROTOCOL, CONTROL_PLANE):  # what ours stand for
        properties.pop(key, None)
    try:
        config = BrokerConfig.parse(properties)
    except ConfigError as e:
        raise LayoutError(f"broker {broker_id}: {e}") from e
    return BrokerLayout(
        broker_id=broker_id,
        port=config.listeners[0].port,
        brokers_port=ports[1],
        metrics_port=ports[2],
        log_dirs=log_dirs,
        properties=properties,
        reach=reach,
        between=between,
        store=store,
        certificates_port=ports[3],
    )
