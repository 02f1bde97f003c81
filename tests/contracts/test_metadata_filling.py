"""A filling that a claim began which is over, and that goes on in a copy that the next claim has filled."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from holdfast.testing import wait_for
from tests.contracts.test_metadata_copies import ONE, TWO, Machine, feature, features, until_whole


def test_A5_a_filling_of_a_claim_that_is_over_takes_nothing_of_the_next_one(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    first = machine.store(1)
    claim = first.claim(ONE)
    first.commit(feature("a"), claim.epoch)
    files = machine.files_of(first)
    machine.break_it("EIO", 0, files)
    first.commit(feature("b"), claim.epoch)
    files.mend()
    plain, begun, go, done = files.rmtree, threading.Event(), threading.Event(), threading.Event()

    def rmtree(path: str) -> None:  # its disk is slow; then its process is killed
        begun.set()
        go.wait()
        plain(path)
        done.set()
        threading.Event().wait()

    files.rmtree = rmtree  # type: ignore[method-assign]

    def filling() -> bool:
        first.tend(claim.epoch)
        return begun.is_set()

    wait_for(filling, "that it fills")
    machine.end(first)
    second = machine.store(2)
    after = second.claim(TWO)
    until_whole(machine, second, after.epoch)
    second.commit(feature("c"), after.epoch)
    go.set()
    wait_for(done.is_set, "that the files are gone")
    second.commit(feature("d"), after.epoch)
    assert [copy.is_good for copy in second.copies()] == [False, True]
    until_whole(machine, second, after.epoch)
    machine.end(second)
    shutil.rmtree(machine.paths[1])
    assert features(machine.store(3)) == {"a", "b", "c", "d"}
    machine.close()
