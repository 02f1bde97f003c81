"""Files that nobody uses any more go piece by piece, aside."""

import errno
import os

import pytest

from holdfast.storage import removal
from holdfast.storage.log_dir import InlineQueue, LogDir
from holdfast.storage.removal import Removals

CUT = removal.CUT_BYTES


class CountingQueue(InlineQueue):
    """A lane that counts its pieces of work."""

    def __init__(self) -> None:
        self.pieces = 0

    def submit(self, work, done):
        self.pieces += 1
        super().submit(work, done)


@pytest.fixture
def lane(log_dir):
    log_dir.background = CountingQueue()
    return log_dir.background


def make(log_dir: LogDir, name: str, *sizes: int) -> str:
    path = f"{log_dir.path}/{name}"
    os.mkdir(path)
    for number, size in enumerate(sizes):
        with open(f"{path}/{number}.log", "wb") as file:
            file.truncate(size)
    return path


DELETED = "t-0." + "0" * 32 + "-delete"


def test_D8_a_large_file_is_cut_from_its_end_step_by_step(log_dir, files, lane):
    path = make(log_dir, DELETED, 4 * CUT + 1, 10)
    sizes = []
    real = files._check

    def check(operation, path):
        real(operation, path)
        if path.endswith("/0.log"):
            sizes.append((operation, os.path.getsize(path) // CUT))

    files._check = check
    Removals().add(log_dir, [path])
    assert not os.path.exists(path)
    assert [size for operation, size in sizes if operation == "truncate"] == [4, 3, 2, 1]
    assert sizes[-1] == ("unlink", 0)  # what is left of it
    assert lane.pieces == 5


def test_D8_the_disk_rests_for_as_long_as_a_step_took(log_dir, lane):
    path = make(log_dir, DELETED, 3 * CUT)
    removals = Removals()
    now, rests, calls = [0.0], [], []

    def clock():
        now[0] += 0.25
        return now[0]

    removals.clock, removals.later = clock, lambda delay_s, call: (rests.append(delay_s), calls.append(call))
    removals.add(log_dir, [path])
    assert len(removals) == 1
    while calls:
        calls.pop()()
    assert rests == [0.25, 0.25]
    assert not os.path.exists(path) and len(removals) == 0


def test_many_small_files_go_together(log_dir, lane):
    path = make(log_dir, DELETED, *[1] * 1000)
    os.mkdir(f"{path}/what")
    Removals().add(log_dir, [path])
    assert not os.path.exists(path)
    assert lane.pieces == 1000 // removal.FILES_PER_STEP + 1
    path = make(log_dir, "t-1", *[1] * 1000)
    Removals().add(log_dir, [f"{path}/{number}.log" for number in range(1000)])
    assert os.listdir(path) == []
    assert lane.pieces == 2 * (1000 // removal.FILES_PER_STEP + 1)


def test_what_is_gone_is_fine_and_nothing_is_nothing(log_dir, lane):
    removals = Removals()
    removals.add(log_dir, [f"{log_dir.path}/{DELETED}", f"{log_dir.path}/t-0/0.log.deleted"])
    removals.add(log_dir, [])
    assert len(removals) == 0 and log_dir.is_online and lane.pieces == 1


def test_K18_03_a_file_that_cannot_be_removed_is_no_failure_of_the_disk(log_dir, files, caplog):
    bad, good = make(log_dir, DELETED, 2 * CUT), make(log_dir, DELETED.replace("t-0", "t-1"), 1)
    files.fail("truncate", "/t-0.")
    removals = Removals()
    removals.add(log_dir, [bad, good])
    assert log_dir.is_online and len(removals) == 0
    assert os.path.exists(bad) and not os.path.exists(good)
    assert "stays until the next start" in caplog.text


def test_a_disk_that_dies_meanwhile_ends_it_all(log_dir, files):
    paths = [make(log_dir, DELETED.replace("t-0", f"t-{i}"), 2 * CUT) for i in range(3)]
    files.fail("truncate", "/t-1.", errno.EIO)
    files.fail_probes()
    removals = Removals()
    removals.add(log_dir, paths)
    assert not log_dir.is_online and len(removals) == 0
    assert [os.path.exists(path) for path in paths] == [False, True, True]
