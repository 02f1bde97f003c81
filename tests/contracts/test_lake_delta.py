"""What is Delta's alone: the position outlives all that may be done to a log."""

from pathlib import Path

import deltalake
import pytest

from holdfast.lake.delta_table import POSITIONS
from holdfast.lake.errors import PositionError
from holdfast.lake.position import Position
from holdfast.lake.table import land
from tests.contracts.lake_tables import batch_of, made, opened


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
