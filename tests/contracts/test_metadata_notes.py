"""The notes of which copies of the metadata are good: who has them when directories fail, come back, or are copied."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.metadata import metadata
from holdfast.coordination import notes
from holdfast.coordination.embedded import EmbeddedStore, Witness
from holdfast.model.errors import KafkaStorageError
from holdfast.storage.files import OsFiles
from holdfast.testing import wait_for
from tests.contracts.test_metadata_copies import ONE, TWO, FaultyFiles, Machine, feature, features, until_whole


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


def test_H_23_a_claim_that_waits_for_a_silent_copy_has_not_failed_by_the_disk_of_the_other(machine: Machine) -> None:
    """The process ends when all copies have failed; one that hangs may be the complete one."""
    store = machine.store()
    claim = store.claim(ONE)
    store.commit(feature("a"), claim.epoch)
    waiting, late = machine.store(2), machine.store(3)
    waiting.cluster_id()
    waiting._election.open_all()  # as one that waits has it
    machine.end(store)
    for other in (waiting, late):
        machine.files_of(other).failing[machine.paths[0]] = errno.EIO
        machine.files_of(other).hang(machine.paths[1])
    for other in (waiting, late):
        with pytest.raises(KafkaStorageError) as caught:
            other.claim(TWO)
        assert caught.value.__cause__ is None
    machine.files_of(waiting).mend()
    assert features(waiting) == {"a"}


def test_H_23_a_silent_copy_is_waited_for_also_when_the_other_fails_in_the_middle_of_a_claim(machine: Machine) -> None:
    store = machine.store()
    claim = store.claim(ONE)
    store.commit(feature("a"), claim.epoch)
    machine.end(store)
    other = machine.store(2)
    other.cluster_id()
    files = machine.files_of(other)
    files.hang(machine.paths[1])
    plain = files.link

    def link(source: str, target: str) -> None:
        if target.startswith(machine.paths[0]):
            raise OSError(errno.EIO, "Input/output error", target)
        plain(source, target)

    files.link = link  # type: ignore[method-assign]
    with pytest.raises(KafkaStorageError) as caught:
        other.claim(TWO)
    assert caught.value.__cause__ is None


# -- holdfast metadata -------------------------------------------------------------------------------------------------


def holdfast_metadata(machine: Machine, *args: str, witness_dirs: str = "") -> Result:
    """The command, on this machine's directories."""
    properties = machine.root / "broker.properties"
    lines = [
        "node.id=1", "listeners=PLAINTEXT://127.0.0.1:9", f"log.dirs={','.join(machine.witnesses)}",
        f"metadata.log.dirs={','.join(machine.paths)}",
    ]  # fmt: skip
    properties.write_text("\n".join([*lines, f"metadata.witness.dirs={witness_dirs}" if witness_dirs else ""]))
    return CliRunner().invoke(metadata, [*args, "--config", str(properties)])


@pytest.mark.parametrize("running", [True, False])
def test_A5_a_disk_that_comes_back_after_force_has_no_say_and_is_filled(machine: Machine, running: bool) -> None:
    """It saw more claims than the copy that was forced."""
    store = machine.store()
    claim = store.claim(ONE)
    store.commit(feature("a"), claim.epoch)
    machine.end(store)
    for _ in range(5):
        store = machine.store()
        machine.files_of(store).failing |= dict.fromkeys([machine.paths[0], machine.witnesses[0]], errno.EIO)
        store.commit(feature("only there"), store.claim(ONE).epoch)
        machine.end(store)
    disk = [machine.paths[1], *machine.witnesses[1:]]
    for path in disk:
        Path(path).rename(f"{path}.away")
    forced = holdfast_metadata(machine, "force", machine.paths[0])
    assert forced.exit_code == 0, forced.output

    def back() -> None:
        for path in disk:
            shutil.rmtree(path, ignore_errors=True)
            Path(f"{path}.away").rename(path)

    store = machine.store()
    claim = store.claim(ONE)
    if not running:
        machine.end(store)
        back()
        store = machine.store()
        claim = store.claim(ONE)
    else:
        back()
    store.commit(feature("after"), claim.epoch)
    until_whole(machine, store, claim.epoch)
    machine.end(store)
    shutil.rmtree(machine.paths[0])
    assert features(machine.store(3)) == {"a", "after"}


def test_A5_force_knows_the_directories_of_metadata_witness_dirs(machine: Machine) -> None:
    places = [str(machine.root / f"witness-{n}") for n in range(3)]
    for path in places:
        Path(path).mkdir()

    def started() -> EmbeddedStore:
        files = FaultyFiles()
        witness = Witness(broker_id=1, directories=tuple(places), makes_place=True)
        store = EmbeddedStore(machine.paths, files=files, patience_s=0.5, witness=witness)
        machine.opened.append(store)
        machine.files.append(files)
        return store

    store = started()
    store.commit(feature("a"), store.claim(ONE).epoch)
    machine.end(store)
    for _ in range(3):
        store = started()
        machine.files_of(store).failing[machine.paths[0]] = errno.EIO
        store.commit(feature("only there"), store.claim(ONE).epoch)
        machine.end(store)
    Path(machine.paths[1]).rename(machine.root / "gone")
    with pytest.raises(KafkaStorageError, match="No complete copy"):
        started().claim(ONE)
    forced = holdfast_metadata(machine, "force", machine.paths[0], witness_dirs=",".join(places))
    assert forced.exit_code == 0, forced.output
    assert features(started()) == {"a"}


def test_A5_nothing_is_made_beneath_a_disk_that_is_not_mounted(machine: Machine) -> None:
    store = machine.store()
    store.commit(feature("a"), store.claim(ONE).epoch)
    machine.end(store)
    beneath = [Path(machine.witnesses[2]), Path(machine.paths[0])]
    for path in beneath:
        shutil.rmtree(path)
        path.mkdir()
    shown = holdfast_metadata(machine, "recover", "--force")
    assert [list(path.iterdir()) for path in beneath] == [[], []], shown.output
    forced = holdfast_metadata(machine, "force", machine.paths[1])
    assert forced.exit_code == 0, forced.output
    assert [list(path.iterdir()) for path in beneath] == [[], []]
