"""A pytest plugin, found by pytest where Holdfast is installed: real clusters as fixtures, and a disk that fails.

    def test_my_client(holdfast_cluster):                 # one cluster for the whole session
        holdfast_cluster.create_topic("orders", partitions=3)
        MyClient(holdfast_cluster.bootstrap).send("orders", b"1")

    @pytest.mark.holdfast(brokers=1, settings={"message.max.bytes": "1000"})
    def test_alone(holdfast_own_cluster):                 # a cluster of this test alone
        ...

    def test_it_logs_in(holdfast_secure_cluster):         # everybody says who he is: TLS, SCRAM, ACLs
        MyClient(**holdfast_secure_cluster.properties("librdkafka"))

    def test_a_disk_dies(holdfast_own_cluster, holdfast_disk):
        holdfast_disk.fail()                              # log directory 2 of broker 1
        ...

``--holdfast-brokers N`` says how many brokers each has that is not told otherwise. It imports nothing of the rest
before a test asks for a cluster: other people's tests should not pay for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast.testing import Cluster, Disk

BROKER, DIRECTORY = 1, 2
"""Where ``holdfast_disk`` is."""
DISK = "replaced"
"""Its kind where the mark says nothing: the only one that needs neither root nor a device."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the fixtures."""
    group = parser.getgroup("holdfast")
    group.addoption("--holdfast-brokers", type=int, default=3, metavar="N", help="brokers of a cluster (default: 3)")


def pytest_configure(config: pytest.Config) -> None:
    """The mark, for --strict-markers."""
    config.addinivalue_line(
        "markers",
        "holdfast(disk='replaced', **options): of holdfast_own_cluster, options as holdfast.testing.Cluster has them; "
        "disk: the kind of holdfast_disk, a name of holdfast.testing.FAULTS",
    )


@pytest.fixture(scope="session")
def holdfast_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A running cluster that all tests of the session share: give topics and groups names of their own."""
    from holdfast.testing import Cluster

    with Cluster(brokers=request.config.getoption("--holdfast-brokers")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def holdfast_secure_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The same, secured: ``properties("librdkafka")`` and others have what a client needs. Needs holdfast[secure]."""
    from holdfast.testing import Cluster

    with Cluster(brokers=request.config.getoption("--holdfast-brokers"), secure=True) as cluster:
        yield cluster


@pytest.fixture
def holdfast_own_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A running cluster of one test, which may kill what it likes."""
    from holdfast.testing import Cluster

    options = _marked(request)
    kind = options.pop("disk", DISK)
    options.setdefault("brokers", request.config.getoption("--holdfast-brokers"))
    if "holdfast_disk" in request.fixturenames:
        options["disks"] = {(BROKER, DIRECTORY): _kind(kind), **options.get("disks", {})}
    with Cluster(**options) as cluster:
        yield cluster


@pytest.fixture
def holdfast_disk(holdfast_own_cluster: Cluster) -> Disk:
    """The second log directory of broker 1 of ``holdfast_own_cluster``: ``fail()`` and ``heal()`` it."""
    return holdfast_own_cluster.disks[BROKER, DIRECTORY]


def _marked(request: pytest.FixtureRequest) -> dict[str, Any]:
    mark = request.node.get_closest_marker("holdfast")
    if mark is None:
        return {}
    if mark.args:
        raise pytest.UsageError(f"@pytest.mark.holdfast{mark.args}: expected options by name, like brokers=1")
    return dict(mark.kwargs)


def _kind(name: str) -> type[Disk]:
    from holdfast.testing import FAULTS

    if name not in FAULTS:
        raise pytest.UsageError(f"@pytest.mark.holdfast(disk={name!r}): expected one of {', '.join(FAULTS)}")
    return FAULTS[name]
