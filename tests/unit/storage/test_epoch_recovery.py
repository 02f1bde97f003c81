"""Leader epochs after a kill, in a log of which a cleaning took what some epochs wrote."""

from pathlib import Path

import pytest

from holdfast.storage.leader_epochs import FILE_NAME
from tests.unit.storage.cleaning import clean_log
from tests.unit.storage.conftest import NOW_MS

COMPACT = {"cleanup_policy": frozenset({"compact"}), "retention_ms": None}
WRITTEN = [(0, 0), (1, 2), (2, 4), (3, 6)]


@pytest.fixture
def cleaned(open_log, batch):
    """Epochs 0 to 3 wrote two batches each; what is left is the second one of epochs 2 and 3."""
    log = open_log(**COMPACT)
    for epoch in range(4):
        log.assign_epoch(epoch)
        for _ in range(2):
            key = b"k" if epoch < 3 else b"z"
            log.append_as_leader(batch(b"v", key=key), epoch, NOW_MS)
    log._roll(log.view.end_offset, NOW_MS)
    log.append_as_leader(batch(b"v"), 3, NOW_MS)
    assert clean_log(log, NOW_MS).end == 8
    assert log.epochs.entries() == WRITTEN
    log.close(clean=False)
    return log


def test_what_the_file_says_of_the_holes_is_kept(cleaned, open_log):
    log = open_log(**COMPACT)
    assert log.epochs.entries() == WRITTEN
    assert log.epochs.end_offset(0, 9) == (0, 2)  # not 5, where the first batch is that is left


def test_without_the_file_the_batches_count(cleaned, open_log):
    (Path(cleaned.path) / FILE_NAME).unlink()
    assert open_log(**COMPACT).epochs.entries() == [(2, 5), (3, 7)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ([(0, 0), (3, 7)], [(0, 0), (2, 5), (3, 7)]),  # an older one
        ([(0, 0), (1, 2), (3, 8)], [(0, 0), (1, 2), (2, 5), (3, 7)]),  # an epoch cannot begin after what it wrote
        ([(0, 0), (3, 6), (5, 7)], [(0, 0), (2, 5), (3, 6)]),
        ([(0, 0), (3, 6), (4, 8)], [(0, 0), (2, 5), (3, 6)]),
    ],
)
def test_where_batches_say_otherwise_they_count(cleaned, open_log, text, expected):
    rows = "".join(f"{epoch} {start}\n" for epoch, start in text)
    (Path(cleaned.path) / FILE_NAME).write_text(f"0\n{len(text)}\n{rows}")
    assert open_log(**COMPACT).epochs.entries() == expected
