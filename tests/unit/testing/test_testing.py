"""What people's tests rely on: deadlines, ports, and errors of a cluster that does not start."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.testing import Cluster, ClusterError, ClusterView, PartitionView, free_port, wait_for
from holdfast.testing.processes import has_gone, lives, waiting_threads


def test_wait_for_gives_the_first_true_value() -> None:
    values = iter([None, 0, "", "there"])
    assert wait_for(lambda: next(values), "something", interval_s=0) == "there"


def test_wait_for_asks_again_when_a_connection_fails_and_says_what_it_waited_for() -> None:
    answers = iter([ConnectionRefusedError("down"), TimeoutError("slow")])

    def ask() -> bool:
        for error in answers:
            raise error
        return True

    assert wait_for(ask, "a broker", interval_s=0)
    with pytest.raises(TimeoutError, match=r"waited 0 s for a sign") as caught:
        wait_for(lambda: False, "a sign", timeout_s=0, interval_s=0)
    assert caught.value.__cause__ is None


def test_wait_for_does_not_hide_a_wrong_condition() -> None:
    with pytest.raises(ZeroDivisionError):
        wait_for(lambda: 1 // 0, "nothing")


def test_free_ports_are_neighbours_that_nobody_listens_on() -> None:
    first = free_port(4)
    for port in range(first, first + 4):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))


def test_a_port_in_use_in_the_middle_costs_no_more_than_its_place() -> None:
    """Of 50 ports, one in use in each half: 18 neighbours are still between them, and behind both."""
    code = (
        "import socket; from holdfast.testing import free_port, ports\n"
        "first = free_port(1); start = ports._ports._blocks[0].start\n"
        "def use(port):\n    used = socket.socket(); used.bind(('127.0.0.1', port)); used.listen(); return used\n"
        "held = [use(start + 10), use(start + 20)]\n"
        "found = {free_port(18) - start for _ in range(10)}\n"
        "assert found <= set(range(21, 33)), found\n"
        "held += [use(start + 38)]\n"
        "other = free_port(18)\n"
        "assert other - start not in range(50), 'another block'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_no_other_process_gets_the_ports_of_this_one() -> None:
    """Not even while nobody listens on them: a cluster that is started again finds its ports free."""
    code = "from holdfast.testing import free_port; print(*(free_port(3) for _ in range(200)))"
    mine = {free_port(3) + i for _ in range(200) for i in range(3)}
    others = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    theirs = {int(first) + i for first in others.stdout.split() for i in range(3)}
    assert not mine & theirs
    with pytest.raises(ValueError, match="count=51: expected 1 to 50"):
        free_port(51)


def up(body: str) -> list[str]:
    return [sys.executable, "-c", f"import sys; {body}"]


def test_a_cluster_that_ends_at_once_shows_what_it_said(tmp_path: Path) -> None:
    command = up("sys.exit('the disk is made of cheese')")
    with (
        pytest.raises(ClusterError, match=r"(?s)up ended with code 1.*made of cheese"),
        Cluster(data_dir=tmp_path, up=command),
    ):
        pass


def test_a_cluster_that_says_something_else_is_refused(tmp_path: Path) -> None:
    command = up("print('hello', flush=True); sys.stdin.read()")
    with pytest.raises(ClusterError, match=r"wrote 'hello'"), Cluster(data_dir=tmp_path, up=command):
        pass


def test_a_cluster_that_never_gets_ready_is_given_up(tmp_path: Path) -> None:
    command = up("import signal; signal.pause()")
    with (
        pytest.raises(ClusterError, match=r"not ready after 0\.2 s"),
        Cluster(data_dir=tmp_path, up=command, ready_timeout_s=0.2),
    ):
        pass


def test_a_temporary_directory_goes_with_its_cluster() -> None:
    cluster = Cluster(up=up("pass"))
    assert cluster.data_dir.is_dir()
    with pytest.raises(ClusterError), cluster:
        pass
    assert not cluster.data_dir.exists()


def test_a_view_names_what_is_not_whole() -> None:
    whole = PartitionView(leader=1, replicas=(1, 2), isr=(2, 1), offline=())
    thin = PartitionView(leader=1, replicas=(1, 2), isr=(1,), offline=(2,))
    headless = PartitionView(leader=None, replicas=(1,), isr=(1,), offline=())
    view = ClusterView(controller_id=1, brokers={}, partitions={("a", 0): whole, ("b", 1): thin, ("b", 0): headless})
    assert view.topics == {"a", "b"}
    assert view.under_replicated == [("b", 0), ("b", 1)]


def test_a_process_may_end_while_one_looks_whether_it_has_gone() -> None:
    """Another process waits for them, so their directories under /proc go at any moment."""
    script = (
        "import os\nfor _ in range(300):\n    pid = os.fork()\n    if not pid: os._exit(sum(range(99999)) > 0)\n    "
    )
    script += "print(pid, flush=True)\n    os.waitpid(pid, 0)\n"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        for line in parent.stdout:
            while lives(int(line)):
                assert set(waiting_threads(int(line))) <= {int(line)}
            assert has_gone(int(line), [])
    assert parent.returncode == 0
