"""The directory of a lake job: each batch whole and once, whatever a crash leaves."""

from pathlib import Path

import pytest

from holdfast.spark.landing import LandedBatch, Landing, LandingError


def stage(landing: Landing, batch: int, kind: str, text: str) -> Path:
    place = landing.staging(batch, kind)
    place.mkdir()
    (place / "part-0.parquet").write_text(text)
    (place / ".part-0.parquet.crc").write_text("sum")
    return place


def land(landing: Landing, batch: int, text: str) -> None:
    landing.put(batch, "good", stage(landing, batch, "good", text))
    landing.finish(LandedBatch(batch=batch, records=len(text), bad=0), {"t": {"0": batch}})


def visible(to: Path) -> list[str]:
    found = to.rglob("*.parquet")
    return sorted(str(each.relative_to(to)) for each in found if not str(each.relative_to(to)).startswith("_"))


def test_a_batch_is_seen_when_it_is_whole(tmp_path: Path) -> None:
    landing = Landing(tmp_path / "to")
    landing.claim("id", "t")
    staged = stage(landing, 0, "good", "abc")
    assert visible(tmp_path / "to") == [] and not landing.has_landed(0)
    landing.put(0, "good", staged)
    assert visible(tmp_path / "to") == ["batch=0/part-0.parquet"]
    assert not landing.has_landed(0)  # until its bad records are in place too
    landing.finish(LandedBatch(batch=0, records=3, bad=0), {"t": {"0": 3}})
    assert landing.has_landed(0)


def test_what_a_crash_left_is_replaced(tmp_path: Path) -> None:
    landing = Landing(tmp_path / "to")
    landing.claim("id", "t")
    stage(landing, 1, "good", "half")
    assert list(landing.staging(1, "good").parent.iterdir()) == []
    landing.put(1, "good", stage(landing, 1, "good", "first"))
    land(landing, 1, "again")
    assert (tmp_path / "to/batch=1/part-0.parquet").read_text() == "again"
    assert visible(tmp_path / "to") == ["batch=1/part-0.parquet"]


def test_batches_are_counted_in_order(tmp_path: Path) -> None:
    landing = Landing(tmp_path / "to")
    landing.claim("id", "t")
    for batch in (10, 2, 0):
        land(landing, batch, "x" * batch)
    assert [(each.batch, each.records) for each in Landing(tmp_path / "to").landed()] == [(0, 0), (2, 2), (10, 10)]


def test_a_directory_belongs_to_one_checkpoint(tmp_path: Path) -> None:
    Landing(tmp_path / "to").claim("id", "t")
    Landing(tmp_path / "to").claim("id", "t")
    with pytest.raises(LandingError, match="with another checkpoint"):
        Landing(tmp_path / "to").claim("other", "t")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("precious")
    with pytest.raises(LandingError, match="not empty and was not made by a lake job"):
        Landing(tmp_path / "mine").claim("id", "t")
