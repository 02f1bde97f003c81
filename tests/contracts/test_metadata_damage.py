"""Damage in the middle of a copy of the metadata is told from its end: such a copy is not gone by, and filled again."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.metadata import metadata
from holdfast.coordination.embedded import EmbeddedStore
from holdfast.metadata.image import ClusterImage
from holdfast.model.errors import KafkaStorageError
from holdfast.records.batch import iter_headers
from holdfast.testing import wait_for
from tests.contracts.test_metadata_copies import ONE, TWO, Machine, feature, features, until_whole

NAMES = {f"f{n}" for n in range(12)}
DAMAGE = ["bit", "zeros", "length", "offset", "epoch up", "epoch down", "missing", "cut out"]


def segment(copy: str) -> Path:
    """The longest of a copy."""
    return max(Path(f"{copy}/__cluster_metadata-0").glob("*.log"), key=lambda path: path.stat().st_size)


def damage(copy: str, how: str) -> int:
    """Of the longest segment, the fifth batch; where it is."""
    path = segment(copy)
    data = bytearray(path.read_bytes())
    position, header = list(iter_headers(bytes(data)))[4]
    if how == "missing":
        path.unlink()
        return 0
    if how == "cut out":
        del data[position : position + header.size]
    elif how == "zeros":
        data[position : position + header.size] = bytes(header.size)
    else:
        at, bit = {"bit": (70, 1), "length": (11, 1), "offset": (7, 64), "epoch up": (14, 1), "epoch down": (15, 2)}[
            how
        ]
        data[position + at] ^= bit
    path.write_bytes(data)
    return position


def filled(machine: Machine) -> EmbeddedStore:
    """Three claims, each with a segment of its own; the second has made all decisions."""
    for number in range(3):
        store = machine.store(1)
        claim = store.claim(ONE)
        for n in range(12) if number == 1 else ():
            store.commit(feature(f"f{n}"), claim.epoch)
        if number < 2:
            machine.end(store)
    return store


def holdfast_metadata(machine: Machine, *args: str) -> Result:
    config = machine.root / "broker.properties"
    config.write_text(
        f"node.id=1\nmetadata.log.dirs={','.join(machine.paths)}\nlog.dirs={','.join(machine.witnesses)}\n"
    )
    return CliRunner().invoke(metadata, [*args, "--config", str(config)])


def files_below(*paths: str) -> dict[str, bytes]:
    found = [path for root in paths for path in Path(root).rglob("*")]
    return {str(path): path.read_bytes() for path in found if path.is_file()}


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("how", DAMAGE)
def test_A5_a_copy_that_is_damaged_in_the_middle_is_left_out_at_a_start_and_filled_again(
    machine: Machine, how: str, which: int, caplog: pytest.LogCaptureFixture
) -> None:
    machine.end(filled(machine))
    damage(machine.paths[which], how)
    logging.disable(logging.NOTSET)
    other = machine.store(2)
    claim = other.claim(TWO)
    loaded = other.load(claim)
    image, _ = ClusterImage.empty("c").apply(loaded.records, loaded.base_offset)
    assert set(image.features) == NAMES
    bad = other.copies()[which]
    assert not bad.is_good and bad.reason is not None and "is damaged" in bad.reason
    assert f"metadata copy {machine.paths[which]} is left out: Metadata log" in caplog.text
    other.commit(feature("after"), claim.epoch)
    until_whole(machine, other, claim.epoch)
    machine.end(other)
    shutil.rmtree(machine.paths[1 - which])
    assert features(machine.store(3)) == {*NAMES, "after"}


@pytest.mark.parametrize("how", DAMAGE)
def test_A5_a_start_with_only_a_damaged_copy_is_refused_and_writes_nothing(machine: Machine, how: str) -> None:
    store = filled(machine)
    machine.end(store)
    # What it had begun in the background ends by itself: notes of older claims go.
    wait_for(lambda: not store._lanes._queues, "threads without work")  # type: ignore[attr-defined]
    position = damage(machine.paths[0], how)
    Path(machine.paths[1]).rename(machine.root / "unplugged")
    before = files_below(machine.paths[0], *machine.witnesses)
    with pytest.raises(KafkaStorageError, match="holdfast metadata recover") as caught:
        machine.store(2).claim(TWO)
    assert machine.paths[1] in str(caught.value) and "is damaged" in str(caught.value)
    if position:
        assert f"at byte {position}" in str(caught.value)
    after = files_below(machine.paths[0], *machine.witnesses)
    assert {name: data for name, data in after.items() if name in before} == before
    assert [name for name in after if name not in before and "metadata-reigns" in name] == []
    # The disk of the whole copy is back: no note says in the meantime that it lacks something.
    shutil.rmtree(machine.paths[1])
    (machine.root / "unplugged").rename(machine.paths[1])
    assert features(machine.store(3)) == NAMES


def test_A5_a_cluster_of_one_damaged_copy_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "meta")
    store = EmbeddedStore(path)
    claim = store.claim(ONE)
    for n in range(12):
        store.commit(feature(f"f{n}"), claim.epoch)
    store.close()
    position = damage(path, "bit")
    before = files_below(path)
    again = EmbeddedStore(path)
    try:
        for _ in range(2):
            with pytest.raises(KafkaStorageError, match=f"at byte {position} .*`holdfast metadata recover`") as caught:
                again.claim(TWO)
            assert caught.value.__cause__ is None
    finally:
        again.close()
    assert files_below(path) == before


@pytest.mark.parametrize("snapshots", [False, True])
@pytest.mark.parametrize("how", DAMAGE)
def test_A5_metadata_check_names_a_damaged_copy_and_where(
    machine: Machine, how: str, snapshots: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", ended)
    store = filled(machine)
    claim = store._claim
    assert claim is not None
    if snapshots:
        loaded = store.load(claim)
        image, _ = ClusterImage.empty("c").apply(loaded.records, loaded.base_offset)
        store.snapshot(image, claim.epoch)
        for n in range(12):
            store.commit(feature(f"g{n}"), claim.epoch)
        machine.end(store)
        machine.store(2).claim(TWO)
    assert holdfast_metadata(machine, "check").exit_code == 0
    position = damage(machine.paths[1], how)
    checked = holdfast_metadata(machine, "check")
    assert checked.exit_code == 1, checked.output
    assert f"{machine.paths[0]}: good" in checked.output
    line = next(line for line in checked.output.splitlines() if line.startswith(f"{machine.paths[1]}: "))
    assert "is damaged" in line
    if position:
        assert f"{segment(machine.paths[1]).name} is not whole at byte {position} " in line


def test_A5_a_damaged_snapshot_is_damage_though_the_one_before_it_is_whole(machine: Machine) -> None:
    store = filled(machine)
    claim = store._claim
    assert claim is not None
    loaded = store.load(claim)
    image, _ = ClusterImage.empty("c").apply(loaded.records, loaded.base_offset)
    old: dict[Path, bytes] = {}
    for n in range(2):
        image, _ = image.apply(feature(f"s{n}"), store.commit(feature(f"s{n}"), claim.epoch))
        old |= {p: p.read_bytes() for p in Path(machine.paths[0]).glob("__cluster_metadata-0/*.checkpoint")}
        store.snapshot(image, claim.epoch)
    machine.end(store)
    newest = max(Path(machine.paths[0]).glob("__cluster_metadata-0/*.checkpoint"))
    newest.write_bytes(newest.read_bytes()[:-1] + b"\xff")
    for path, data in old.items():  # as a loss of power leaves it that undid its removal
        path.write_bytes(data)
    other = machine.store(2)
    assert features(other) == {*NAMES, "s0", "s1"}
    assert [copy.is_good for copy in other.copies()] == [False, True]


def test_A5_force_does_not_go_on_with_a_damaged_copy_and_recover_takes_none_for_good(machine: Machine) -> None:
    store = filled(machine)
    cluster_id = store.cluster_id()
    machine.end(store)
    position = damage(machine.paths[0], "bit")
    Path(machine.paths[1]).rename(machine.root / "unplugged")
    forced = holdfast_metadata(machine, "force", machine.paths[0])
    assert forced.exit_code == 1 and f"at byte {position}" in forced.output
    for path in machine.witnesses:
        Path(path, "meta.properties").write_text(f"cluster.id={cluster_id}\n")
    recovered = holdfast_metadata(machine, "recover", "--execute")
    assert recovered.exit_code == 0, recovered.output
    assert features(machine.store(2)) == set()
