"""The notes of which copies of the metadata are good: who has them when directories fail, come back, or are copied."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.coordination import notes
from holdfast.model.errors import KafkaStorageError
from holdfast.storage.files import OsFiles
from holdfast.testing import wait_for
from tests.contracts.test_metadata_copies import ONE, TWO, Machine, feature, features


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    logging.disable(logging.ERROR)
    yield made
    logging.disable(logging.NOTSET)
    made.close()


def noted(machine: Machine) -> list[Any]:
    """The order of the newest note in each log directory."""
    found = [notes.newest(OsFiles(), path) for path in machine.witnesses]
    return [note and note.order for note in found]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_A5_a_log_directory_that_failed_to_take_a_note_is_told_when_it_works(machine: Machine, code: int) -> None:
    store = machine.store()
    files = machine.files_of(store)
    claim = store.claim(ONE)
    store.commit(feature("a"), claim.epoch)
    files.failing |= dict.fromkeys(machine.witnesses, code)
    files.failing[machine.paths[1]] = errno.EIO
    store.commit(feature("only there"), claim.epoch)
    assert noted(machine) == [(claim.epoch, 0)] * 3
    for path in machine.witnesses:
        del files.failing[path]

    def told() -> bool:
        store.tend(claim.epoch)
        return noted(machine) == [(claim.epoch, 1)] * 3

    wait_for(told, "the note in every log directory")
    machine.end(store)
    files.mend()
    Path(machine.paths[0]).rename(machine.root / "unplugged")
    with pytest.raises(KafkaStorageError, match="left out earlier: it lacks decisions"):
        machine.store(2).claim(TWO)


def test_A5_a_claim_leaves_the_older_note_where_it_could_not_write_its_own(machine: Machine) -> None:
    store = machine.store()
    claim = store.claim(ONE)
    store.commit(feature("a"), claim.epoch)
    machine.end(store)
    second = machine.store(2)
    files = machine.files_of(second)
    plain = files.write_atomic
    full = list(machine.witnesses)

    def write(path: str, *args: Any, **options: Any) -> None:
        if any(path.startswith(f"{witness}/") for witness in full):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        plain(path, *args, **options)

    files.write_atomic = write  # type: ignore[method-assign]
    after = second.claim(TWO)
    wait_for(lambda: len(os.listdir(f"{machine.paths[0]}/metadata-reigns")) == 1, "that older notes are removed")
    wait_for(lambda: not second._lanes._queues, "that nothing is under way")  # type: ignore[attr-defined]
    assert noted(machine) == [(claim.epoch, 0)] * 3
    full.clear()

    def told() -> bool:
        second.tend(after.epoch)
        return noted(machine) == [(after.epoch, 0)] * 3

    wait_for(told, "the note in every log directory")
    machine.end(second)
    Path(machine.paths[0]).rename(machine.root / "dead")
    assert features(machine.store(3)) == {"a"}
