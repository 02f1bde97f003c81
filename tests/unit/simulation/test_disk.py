"""The fault model of the simulated disk: what a kill keeps, what a loss of power may take, and what it may not."""

import errno
import random
from collections.abc import Callable

import pytest

from tests.simulation.disk import CrashNow, ProcessGone, RoutedFiles, SimDisk, SimFiles, WouldBlock

SEEDS = range(200)


def make_disk(seed: int = 0, **options: int) -> SimDisk:
    disk = SimDisk(random.Random(seed), now_ms=lambda: 5_000, **options)
    disk.mount_point("/d")
    return disk


def after_power_loss(prepare: Callable[[SimFiles], object], look: Callable[[SimFiles], object]) -> set[object]:
    """All that ``look`` finds over many seeds."""
    found = set()
    for seed in SEEDS:
        disk = make_disk(seed)
        prepare(disk.mount("before"))
        disk.power_loss(random.Random(seed))
        found.add(look(disk.mount("after")))
    return found


def content(files: SimFiles, path: str = "/d/f") -> bytes | None:
    return files.read_bytes(path) if files.exists(path) else None


def test_a_kill_keeps_what_was_written_and_ends_the_process() -> None:
    disk = make_disk()
    files, other = disk.mount("a"), disk.mount("b")
    handle = files.open("/d/f", create=True)
    handle.pwritev((b"written",), 0)
    lock = files.lock("/d/lock")
    assert lock is not None
    disk.kill("a")
    for call in (lambda: handle.pread(1, 0), handle.fsync, lambda: files.exists("/d/f"), lambda: files.lock("/d/x")):
        with pytest.raises(ProcessGone):
            call()
    handle.close()
    assert content(other) == b"written"
    theirs = other.lock("/d/lock")
    assert theirs is not None
    lock.release()  # by the dead process: nothing
    again = disk.mount("a")
    assert again.lock("/d/lock") is None
    assert content(again) == b"written"
    files.kill()  # of the process that has the name now
    with pytest.raises(ProcessGone):
        again.exists("/d/f")


def test_a_lock_goes_on_to_who_waits_when_its_process_is_killed() -> None:
    disk = make_disk()
    files, other = disk.mount("a"), disk.mount("b")
    files.wait_for_lock("/d/lock")
    with pytest.raises(WouldBlock) as caught:
        other.wait_for_lock("/d/lock")
    woken: list[str] = []
    caught.value.lock.when_free.append(lambda: woken.append("b"))
    assert woken == []
    disk.kill("a")
    assert woken == ["b"]
    assert other.wait_for_lock("/d/lock") is not None


def test_H_27_power_loss_keeps_what_was_synced() -> None:
    def prepare(files: SimFiles) -> None:
        handle = files.open("/d/f", create=True)
        handle.pwritev((b"a" * 1000,), 0)
        handle.fsync()
        files.fsync_dir("/d")
        for i in range(20):
            handle.pwritev((b"b" * 100,), 1000 + 100 * i)

    found = after_power_loss(prepare, content)
    assert all(isinstance(c, bytes) and c.startswith(b"a" * 1000) for c in found)
    ends = {c[1000:] for c in found if isinstance(c, bytes)}
    assert {b"", b"b" * 2000} <= ends
    assert any(e and b"\0" not in e and len(e) % 100 == 0 and len(e) < 2000 for e in ends)  # some of the writes
    assert any(len(e) % 100 for e in ends)  # torn
    assert any(b"\0b" in e for e in ends)  # a later piece without an earlier one


def test_power_loss_takes_overwritten_bytes_back_or_not_by_sectors() -> None:
    def prepare(files: SimFiles) -> None:
        handle = files.open("/d/f", create=True)
        handle.pwritev((b"1" * 2048,), 0)
        handle.fsync()
        files.fsync_dir("/d")
        handle.pwritev((b"2" * 2048,), 0)
        handle.truncate(1024)
        handle.pwritev((b"3" * 512,), 1024)

    def sectors(files: SimFiles) -> str:
        data = files.read_bytes("/d/f")
        pieces = [data[i : i + 512] for i in range(0, len(data), 512)]
        assert all(len(set(p)) == 1 for p in pieces)
        return "".join(chr(p[0]) for p in pieces if len(p) == 512)

    found = after_power_loss(prepare, sectors)
    assert {"1111", "2222", "223"} <= found
    assert len(found) > 8
    assert all(set(str(s)) <= set("123\0") for s in found)


def test_power_loss_may_take_names_that_were_not_synced_from_the_latest_on() -> None:
    def prepare(files: SimFiles) -> None:
        files.write_atomic("/d/0", b"", durable=True)
        for i in (1, 2, 3):
            files.mkdir(f"/d/{i}")
        files.unlink("/d/0")
        files.rename("/d/3", "/d/4")

    found = after_power_loss(prepare, lambda files: "".join(sorted(files.listdir("/d"))))
    assert found == {"0", "01", "012", "0123", "123", "124"}


def test_H_27_a_file_replaced_durably_survives() -> None:
    def prepare(files: SimFiles) -> None:
        files.write_atomic("/d/f", b"old")
        files.write_atomic("/d/f", b"new")

    assert after_power_loss(prepare, content) == {b"new"}


def test_a_file_replaced_without_sync_is_old_or_new_or_torn() -> None:
    def prepare(files: SimFiles) -> None:
        files.write_atomic("/d/f", b"old")
        files.write_atomic("/d/f", b"new" * 500, durable=False)

    found = after_power_loss(prepare, content)
    assert {b"old", b"new" * 500, b""} <= found


def test_a_synced_file_without_a_synced_name_may_be_missing() -> None:
    def prepare(files: SimFiles) -> None:
        handle = files.open("/d/f", create=True)
        handle.pwritev((b"x",), 0)
        handle.fsync()

    assert after_power_loss(prepare, content) == {None, b"x"}


@pytest.mark.parametrize("everything", ["sync_all", "writeback"])
def test_after_a_sync_of_all_nothing_is_lost(everything: str) -> None:
    def prepare(files: SimFiles) -> None:
        files.makedirs("/d/a/b")
        files.write_atomic("/d/a/b/f", b"x" * 3000, durable=False)
        files.open("/d/g", create=True).truncate(100)
        if everything == "sync_all":
            files.sync_all("/d")
        else:
            files.disk.writeback(1.0)

    def look(files: SimFiles) -> object:
        return files.read_bytes("/d/a/b/f"), files.read_bytes("/d/g"), files.disk.used

    assert after_power_loss(prepare, look) == {(b"x" * 3000, bytes(100), 3000)}


def test_power_loss_ends_all_processes_and_frees_locks() -> None:
    disk = make_disk()
    files, other = disk.mount("a"), disk.mount("b")
    files.wait_for_lock("/d/lock")
    files.fsync_dir("/d")
    disk.power_loss(random.Random(1))
    for each in (files, other):
        with pytest.raises(ProcessGone):
            each.exists("/d")
    assert disk.mount("a").lock("/d/lock") is not None


def test_the_same_seed_loses_the_same() -> None:
    def run() -> object:
        disk = make_disk(3)
        files = disk.mount("a")
        rng = random.Random(9)
        handles = [files.open(f"/d/{i}", create=True) for i in range(5)]
        for _ in range(200):
            rng.choice(handles).pwritev((rng.randbytes(rng.randint(1, 900)),), rng.randint(0, 3000))
        disk.power_loss(rng)
        files = disk.mount("b")
        return [(name, files.read_bytes(f"/d/{name}")) for name in files.listdir("/d")], disk.operations

    assert run() == run()


def test_a_full_disk_takes_what_fits() -> None:
    disk = make_disk(capacity=1000)
    files = disk.mount("a")
    handle = files.open("/d/f", create=True)
    handle.pwritev((b"x" * 900,), 0)
    assert files.statvfs("/d").usable == 100
    with pytest.raises(OSError, match="No space") as caught:
        handle.pwritev((b"y" * 200,), 900)
    assert caught.value.errno == errno.ENOSPC
    assert (handle.size(), disk.used) == (1000, 1000)
    handle.pwritev((b"z" * 1000,), 0)  # no new room is needed
    handle.truncate(1 << 30)
    assert files.statvfs("/d").usable == 0
    files.rename("/d/f", "/d/g")
    files.link("/d/g", "/d/h")
    files.unlink("/d/g")
    assert disk.used == 1000
    files.write_atomic("/d/empty", b"")
    files.rename("/d/empty", "/d/h")
    assert disk.used == 0
    disk.capacity = 2000
    assert files.statvfs("/d").total == 2000


def test_faults_hit_the_operation_that_they_are_for() -> None:
    disk = make_disk()
    files = disk.mount("a")
    handle = files.open("/d/f", create=True)
    seen: list[tuple[str, str]] = []

    def fault(operation: str, path: str) -> None:
        seen.append((operation, path))
        if operation == "fsync":
            raise OSError(errno.EIO, "injected")

    disk.fault = fault
    before = disk.operations
    handle.pwritev((b"x",), 0)
    with pytest.raises(OSError, match="injected"):
        handle.fsync()
    with pytest.raises(OSError, match="injected"):
        files.write_atomic("/d/g", b"x")
    assert seen == [
        ("write", "/d/f"), ("fsync", "/d/f"),
        ("create", "/d/g.tmp"), ("stat", "/d/g.tmp"), ("write", "/d/g.tmp"), ("fsync", "/d/g.tmp"),
    ]  # fmt: skip
    assert disk.operations == before + len(seen)
    disk.fault = None
    disk.die()
    for call in (lambda: handle.pread(1, 0), lambda: files.listdir("/d"), lambda: files.statvfs("/d")):
        with pytest.raises(OSError, match="Input/output"):
            call()


def test_a_crash_in_a_write_leaves_a_part_of_it() -> None:
    sizes = set()
    for seed in range(60):
        disk = make_disk(seed)
        files = disk.mount("a")
        handle = files.open("/d/f", create=True)

        def crash(operation: str, path: str) -> None:
            raise CrashNow

        disk.fault = crash
        try:
            handle.pwritev((b"ab", b"cd"), 0)
        except CrashNow:
            with pytest.raises(CrashNow):  # what runs on its way out does nothing any more
                files.unlink("/d/f")
        disk.fault = None
        with pytest.raises(CrashNow):
            handle.pwritev((b"more",), 100)
        disk.kill("a")
        with pytest.raises(ProcessGone):
            handle.size()
        data = disk.mount("b").read_bytes("/d/f")
        assert data == b"abcd"[: len(data)]
        sizes.add(len(data))
    assert sizes == {0, 1, 2, 3, 4}


def test_a_process_with_two_disks_dies_on_both() -> None:
    one, two = make_disk(1), make_disk(2)
    files = RoutedFiles({"/m/one": one.mount("p"), "/m/one/two": two.mount("p")})
    files.write_atomic("/m/one/f", b"1")
    files.write_atomic("/m/one/two/f", b"2")
    assert "f" not in two.root.names
    with pytest.raises(OSError, match="cross-device"):
        files.rename("/m/one/f", "/m/one/two/g")
    with pytest.raises(FileNotFoundError):
        files.exists("/elsewhere")
    two.kill("p")
    for path in ("/m/one/f", "/m/one/two/f"):
        with pytest.raises(ProcessGone):
            files.exists(path)
    one.kill("p")
    one.power_loss(random.Random(1))
    again = RoutedFiles({"/m/one": one.mount("p")})
    assert again.read_bytes("/m/one/f") == b"1"


def test_cold_reads_are_answered_by_those_that_wait() -> None:
    disk = make_disk()
    handle = disk.mount("a").open("/d/f", create=True)
    handle.pwritev((b"0123456789",), 0)
    assert handle.preadv_nowait(4, 2) == b"2345"
    disk.cold = 1.0
    assert handle.preadv_nowait(4, 2) is None
    assert handle.pread(4, 2) == b"2345"
