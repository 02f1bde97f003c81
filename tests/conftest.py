"""What every test may use: a real cluster for the session, and topic names that nobody else has.

``HOLDFAST_TEST_UP="python benchmarks/peers/kafka.py" pytest tests/compat`` runs the same tests against
Apache Kafka: where a client test fails there too, the test is wrong.

``pytest --store zookeeper`` (or HOLDFAST_TEST_STORE=zookeeper) runs every cluster of ``holdfast.testing`` with its
metadata in a real ZooKeeper server beside it; what is marked ``embedded_store`` is left out. Without it the modules
that are marked ``either_store`` run with both.

``pytest --long`` also runs what is marked ``long``: proofs of minutes of which `make test` has a shorter one.
"""

from __future__ import annotations

import faulthandler
import gc
import itertools
import os
import re
import shlex
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from holdfast.testing import Cluster
from holdfast.testing.cluster import STORE
from tests.zookeeper.cluster_nodes import ClusterNodes
from tests.zookeeper.server import ZooKeeperServer

pytest_plugins = ["tests.second_run"]

# An example that takes long on a busy machine is no finding.
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")

_numbers = itertools.count(1)
_configs: list[pytest.Config] = []
_stderr: list[int] = []
"""As it was before tests had what they print captured."""
UNTRACED = (
    "system", "spark", "compat", "zookeeper", "rights",  # what they show runs in other processes
    "simulation/test_simulation.py", "simulation/test_group_stories.py", "simulation/test_ensemble",
    "unit/storage/test_cleaning_crash.py", "unit/broker/test_coordinator_loading_cleaned.py", "unit/test_",
    *(
        f"property/test_{name}.py"
        for name in (
            "controller", "cut_commits", "ensemble_model", "fuzz_readers", "groups", "metadata_copies", "migration",
            "protocol_codecs", "protocol_robustness", "records", "transactions", "znodes",
        )
    ),
)  # fmt: skip
"""Tests that do not count for the coverage of the deciding floors: unit tests alone reach the limit for theirs, and the
same code thousands of times takes two and a half times as long when it is traced."""
WAITING = ("system", "zookeeper", "spark", "compat", "rights")
"""Tests that mostly wait for other processes; the others compute."""
TIMED = (
    *WAITING, "unit/broker", "unit/chaos", "unit/cli", "unit/client", "unit/console", "unit/registry", "unit/spark",
    "unit/testing", "contracts/test_filesystem", "contracts/test_lake", "contracts/test_metadata",
    "contracts/test_zookeeper",
)  # fmt: skip
"""Tests that a busy machine can disturb: of real processes, or of real sockets, threads and timers."""
EMBEDDED, ZOOKEEPER = "embedded", "zookeeper"
MOST_OPEN = 600
"""Of a process that runs tests. From 1,024 on select() fails, and with it what calls it: PySpark waited for ever."""
TEARDOWN_S = 200.0
"""More than whatever a fixture's end waits for has as its own limit."""
ONE_COPY = {"default.replication.factor": "1"}
"""Topics say themselves how many replicas they have, and one is enough for a write: what most tests count on."""
STEADY_DISKS = {"log.dir.degraded.probe.ms": "60000"}
"""No disk is slow for as long: where tests count leaders and states of directories, the disk of a busy machine would be
found degraded now and then, and its leaders moved away. Not for tests of disks that hang, which take as long to be
found."""
SETTINGS = {**ONE_COPY, **STEADY_DISKS}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also what is marked `long`, and left out of `make test`")
    parser.addoption(
        "--store", choices=(EMBEDDED, ZOOKEEPER), default=None, help="where clusters of tests have their metadata"
    )


def pytest_configure(config: pytest.Config) -> None:
    """What is given holds for every cluster, also for those that no fixture makes."""
    _configs.append(config)
    _stderr.append(os.dup(2))
    if given := config.getoption("--store"):
        os.environ[STORE] = given


def ends_within(seconds: float) -> None:
    """The process ends, with what each thread was doing, unless this is called again by then.

    The limit of pytest-timeout is no limit for a call that does not come back from C, and it is taken away when a test
    fails: what ends after that, a broken cluster for one, could wait for ever.
    """
    faulthandler.dump_traceback_later(seconds, exit=True, file=_stderr[-1])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    given = item.get_closest_marker("timeout")
    ends_within((given.args[0] if given else float(item.config.getini("timeout"))) + TEARDOWN_S)
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    ends_within(TEARDOWN_S)
    try:
        done = yield
    finally:
        faulthandler.cancel_dump_traceback_later()
    if open_files() > MOST_OPEN:
        gc.collect()
        assert open_files() <= MOST_OPEN, "so many files are open in this process; tests have to close theirs"
    return done


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A failure is told at once: of a run that is ended from outside no summary is seen."""
    config = _configs[-1]
    terminal: Any = config.pluginmanager.get_plugin("terminalreporter")
    if report.failed and terminal is not None and not hasattr(config, "workerinput"):
        terminal.write_line(f"\n{report.when} of {report.nodeid} failed: {reason(report)}")


def reason(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = str(crash.message if crash is not None else report.longreprtext).strip().splitlines()
    return lines[0][:300] if lines else "no reason given"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("either_store") is not None:
        asked = os.environ.get(STORE)
        metafunc.parametrize("store", [asked] if asked else [EMBEDDED, ZOOKEEPER], indirect=True, scope="module")


@pytest.fixture(scope="module", autouse=True)
def store(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """What clusters have that this module makes; of the session's ``cluster`` the option says it."""
    wanted = getattr(request, "param", os.environ.get(STORE))
    with pytest.MonkeyPatch.context() as patch:
        if wanted is not None:
            patch.setenv(STORE, wanted)
        yield wanted


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    if os.environ.get(STORE, EMBEDDED) != EMBEDDED:
        left_out = [item for item in items if item.get_closest_marker("embedded_store") is not None]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker("embedded_store") is None]
    if not config.getoption("--long"):
        long = [item for item in items if item.get_closest_marker("long") is not None]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item.get_closest_marker("long") is None]
    items[:] = mixed(items, here)
    for item in items:
        if item.path.relative_to(here).as_posix().startswith(UNTRACED):
            item.add_marker("no_cover")
        if item.path.relative_to(here).as_posix().startswith(TIMED):
            item.add_marker(pytest.mark.flaky(reruns=1))  # tests/second_run.py


def mixed(items: list[pytest.Item], here: Path) -> list[pytest.Item]:
    """Whole files, those that wait and those that compute in turn, each kind in its order: workers take one file after
    the other, and cores that wait at the beginning would be too few at the end."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    waiting = [path for path in files if path.relative_to(here).as_posix().startswith(WAITING)]
    computing = [path for path in files if not path.relative_to(here).as_posix().startswith(WAITING)]
    order = {path: number / len(kind) for kind in (waiting, computing) for number, path in enumerate(kind)}
    return [item for path in sorted(files, key=order.__getitem__) for item in files[path]]


def up_command() -> list[str] | None:
    """The command that starts a cluster, when it is not ``holdfast up``."""
    given = os.environ.get("HOLDFAST_TEST_UP")
    return shlex.split(given) if given else None


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers with two log directories each, shared by the session: leave it as you found it."""
    with Cluster(data_dir=tmp_path_factory.mktemp("cluster"), up=up_command(), settings=SETTINGS) as running:
        yield running


@pytest.fixture
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Cluster]]:
    """Makes clusters (options as ``Cluster``) that this test may break; they end with it."""
    made: list[Cluster] = []

    def start(**options: object) -> Cluster:
        options.setdefault("data_dir", tmp_path_factory.mktemp("own-cluster"))
        options.setdefault("up", up_command())
        given = options.get("settings") or {}
        assert isinstance(given, dict)
        options["settings"] = {**SETTINGS, **given}
        made.append(Cluster(**options))  # type: ignore[arg-type]
        return made[-1].__enter__()

    yield start
    for running in reversed(made):
        running.__exit__(None, None, None)


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One server for the session: leave it running, and keep below a chroot of your own."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def cluster_nodes(zookeeper_server: ZooKeeperServer) -> Iterator[ClusterNodes]:
    """A cluster's nodes, which nobody else has, on that server."""
    nodes = ClusterNodes(zookeeper_server, f"/cluster-{next(_numbers)}")
    yield nodes
    nodes.close()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of this test's own; the topic is not created."""
    readable = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name).strip("-")
    return f"{readable[:120]}-{next(_numbers)}"
