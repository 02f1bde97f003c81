"""What is Delta's alone: the position outlives all that may be done to a log."""

from pathlib import Path

import deltalake
import pytest

from holdfast.lake.data_files import attempt_of
from holdfast.lake.delta_table import POSITIONS
from holdfast.lake.errors import PositionError
from holdfast.lake.position import Position
from holdfast.lake.table import land, now_ms
from holdfast.lake.upkeep import compact, sweep
from tests.contracts.lake_tables import all_files, batch_of, made, made_by_others, opened


def test_the_text_of_the_position_is_in_two_places_and_its_loss_is_told(tmp_path: Path) -> None:
    table = made(tmp_path, "delta")
    position = Position()
    for number in range(3):
        position = land(table, batch_of(table, position, (0, number, number + 1)))
    texts = sorted((tmp_path / "table" / POSITIONS).iterdir())
    assert len(texts) == 3
    texts[-1].rename(tmp_path / "kept")
    assert opened(tmp_path, "delta").position() == position  # from the commit's info
    deltalake.DeltaTable(str(tmp_path / "table")).create_checkpoint()
    for number in range(4):
        (tmp_path / f"table/_delta_log/{number:020d}.json").unlink()
    with pytest.raises(PositionError, match=r"commit 3 of the lake is in the log.*put that file back"):
        opened(tmp_path, "delta").position()
    (tmp_path / "kept").rename(texts[-1])
    assert opened(tmp_path, "delta").position() == position
    texts[0].rename(texts[-1])
    with pytest.raises(PositionError, match="the text of commit 3 is one of commit 1"):
        opened(tmp_path, "delta").position()


def test_a_table_of_others_keeps_what_left_it_for_as_long_as_it_says(tmp_path: Path) -> None:
    table = made_by_others(tmp_path, "delta")
    position = table.position()
    for number in range(3):
        position = land(table, batch_of(table, position, (0, number, number + 1)))
    table.refresh()
    assert compact(table, attempt_of(now_ms()), target_bytes=1 << 20).files_before == 3
    for _ in range(2):
        table.refresh()
        table.expire(older_than_ms=now_ms() + 1_000)
    assert sweep(opened(tmp_path, "delta"), clock=lambda: now_ms() + 1_000, most_age_ms=0) == ()
    assert len(all_files(tmp_path / "table/data")) == 4
