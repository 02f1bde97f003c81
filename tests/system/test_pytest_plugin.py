"""The fixtures that other people's tests get: run as they would run them, by a pytest of its own."""

import subprocess
import sys
import textwrap
from pathlib import Path

TESTS = """
    import pytest
    from holdfast.testing import wait_for
    from holdfast.records.record import Record

    def values(found: dict[int, list[Record]]) -> list[bytes]:
        return sorted(each.value for records in found.values() for each in records)

    def test_what_is_written_is_there(holdfast_cluster):
        assert len(holdfast_cluster.live()) == 2
        holdfast_cluster.create_topic("orders", partitions=3)
        assert holdfast_cluster.produce("orders", [b"a", (b"k", b"b"), (None, b"c")]) == 3
        holdfast_cluster.produce("orders", [b"d"], partition=2)
        found = holdfast_cluster.consume("orders")
        assert sorted(found) == [0, 1, 2]
        assert values(found) == [b"a", b"b", b"c", b"d"]
        assert found[2][-1].value == b"d"

    def test_the_cluster_is_shared(holdfast_cluster):
        assert values(holdfast_cluster.consume("orders", read_committed=True)) == [b"a", b"b", b"c", b"d"]

    @pytest.mark.holdfast(brokers=1, settings={"num.partitions": "4"})
    def test_one_of_its_own(holdfast_own_cluster):
        assert len(holdfast_own_cluster.live()) == 1
        assert "orders" not in holdfast_own_cluster.describe().topics
        holdfast_own_cluster.create_topic("t", assignment={0: (1,), 1: (1,)})
        assert len(holdfast_own_cluster.describe(["t"]).partitions) == 2

    def test_one_logs_in(holdfast_secure_cluster):
        cluster = holdfast_secure_cluster
        cluster.create_topic("t")
        assert cluster.produce("t", [b"a"]) == 1
        cluster.kill(2)
        cluster.revive()
        cluster.wait_in_sync(["t"])
        assert values(cluster.consume("t")) == [b"a"]
        assert cluster.properties("librdkafka")["security.protocol"] == "SASL_SSL"

    def test_a_disk_dies(holdfast_own_cluster, holdfast_disk):
        cluster = holdfast_own_cluster
        cluster.create_topic("t", partitions=4, replication_factor=2, config={"min.insync.replicas": "1"})
        cluster.produce("t", [(b"%d" % n, b"%d" % n) for n in range(10)])
        holdfast_disk.fail()
        wait_for(lambda: cluster.describe(["t"], broker=2).under_replicated, "its replicas leave the ISR")
        cluster.wait_for_leaders(["t"])
        assert len(values(cluster.consume("t"))) == 10
"""


def pytest(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), *words]
    if "holdfast.pytest_plugin" not in _registered():
        command += ["-p", "holdfast.pytest_plugin"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def _registered() -> set[str]:
    """Where Holdfast was installed before it had the plugin, pytest does not find it by itself."""
    from importlib.metadata import entry_points

    return {each.value for each in entry_points(group="pytest11")}


def test_W_17_clusters_and_a_disk_are_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(textwrap.dedent(TESTS))
    done = pytest(tmp_path, "--holdfast-brokers", "2", "--strict-markers")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_W_17_a_mark_that_means_nothing_is_told(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        textwrap.dedent(
            """
            import pytest

            @pytest.mark.holdfast(disk="wooden")
            def test_disk(holdfast_disk):
                ...

            @pytest.mark.holdfast(3)
            def test_number(holdfast_own_cluster):
                ...
            """
        )
    )
    done = pytest(tmp_path)
    assert done.returncode == 1
    assert "@pytest.mark.holdfast(disk='wooden'): expected one of eio, read-only" in done.stdout
    assert "@pytest.mark.holdfast(3,): expected options by name, like brokers=1" in done.stdout


def test_a_run_without_clusters_loads_none_of_it(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "import sys\n\ndef test_modules():\n    assert 'holdfast.testing' not in sys.modules\n"
        "    assert 'holdfast.client.cluster' not in sys.modules\n"
    )
    assert pytest(tmp_path).returncode == 0
