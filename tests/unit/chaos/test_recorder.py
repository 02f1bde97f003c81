"""The ledger's file gives the same verdict as the run did."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.recorder import Recorder, key_of, record_of, replay, value_of
from tests.checks.ledger import pack


def test_a_record_is_known_by_its_bytes() -> None:
    for sequence in range(300):
        assert record_of(key_of(3, sequence), value_of(3, sequence)) == pack(3, sequence)
    assert 30 < min(len(value_of(1, n)) for n in range(300)) < max(len(value_of(1, n)) for n in range(300)) < 210


def test_a_record_with_one_wrong_byte_is_nobodys() -> None:
    value = value_of(3, 7)
    for position in range(len(value)):
        changed = bytearray(value)
        changed[position] ^= 1
        assert record_of(key_of(3, 7), bytes(changed)) is None
    assert record_of(key_of(3, 8), value) is None
    assert record_of(None, value) is None
    assert record_of(key_of(3, 7), value[:-1]) is None


def test_a_run_from_its_file(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    places = [("t", 0), ("t", 1)]
    recorder.watch(places)
    for number in range(100):
        place = places[number % 2]
        sequence = recorder.sent(1)
        recorder.acked(1, sequence, place, number // 2)
        recorder.read(1, place, number // 2, pack(1, sequence), group=False)
        recorder.read(2, place, number // 2, pack(1, sequence), group=True)
        recorder.end(place, number // 2 + 1, 0)
    recorder.failed(1, recorder.sent(1), "why")
    recorder.starts_at(1, ("t", 0), 3)
    recorder.read(1, ("t", 0), 4, None, group=False)
    logs = {f"t-{p}": [pack(1, n) for n in range(100) if n % 2 == p and n != 99] for p in (0, 1)}
    verdict = recorder.verdict(logs, [])
    recorder.close()
    again = replay(tmp_path).verdict(logs)
    assert again == verdict
    assert sorted({violation.kind for violation in verdict.violations}) == ["foreign", "gap", "lost"]
    assert verdict.totals.failed == 1


def test_pauses(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.watch([("t", 0), ("t", 1)])
    recorder.acked(1, recorder.sent(1), ("t", 1), 0)
    first = recorder.take_pause()
    assert first.seconds > 0 and first.place == ("t", 0), "the one that has none yet"
    assert recorder.without_ack_since(0) == []
    recorder.close()
