"""Two whole drivers on one table in S3, as moto's server serves it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.lake.columns import partition_column
from holdfast.lake.opening import open_table
from tests.moto_server import moto_server, s3_settings

if TYPE_CHECKING:
    from holdfast.testing import Cluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.long(
        "two drivers that are started until both have ended; every run has two writers on S3 "
        "(test_spark_D2_two_writers_on_s3_land_once) and two drivers on one directory "
        "(test_spark_D2_of_two_drivers_the_one_that_comes_late_is_refused)"
    ),
]
CATALOG, RECORDS, PER_BATCH = "s3catalog", 6_000, 300


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    import s3fs

    with moto_server() as url:
        catalog = f"PYICEBERG_CATALOG__{CATALOG.upper()}__"
        for name, value in {
            **s3_settings(url),
            f"{catalog}TYPE": "sql",
            f"{catalog}URI": f"sqlite:///{tmp_path}/catalog.db",
            f"{catalog}WAREHOUSE": "s3://bucket/warehouse",
            f"{catalog}S3__ENDPOINT": url,
        }.items():
            monkeypatch.setenv(name, value)
        s3fs.S3FileSystem(skip_instance_cache=True).mkdir("bucket")
        yield url


def driver(cluster: Cluster, topic: str, to: str, form: str, checkpoint: Path) -> subprocess.Popen[str]:
    words = ["--bootstrap-server", cluster.bootstrap, "--topic", topic, "--to", to, "--format", form]
    words += ["--checkpoint", str(checkpoint), "--available-now", "--max-records-per-batch", str(PER_BATCH)]
    words += ["--maintain-every", "5", *(("--catalog", CATALOG) if form == "iceberg" else ())]
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli.main", "lake", *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "COLUMNS": "300"},
    )  # fmt: skip


def landed(to: str, form: str) -> list[tuple[int, int]]:
    """Partition and offset of every row, by the format's own library."""
    columns = [partition_column(form), "_offset"]
    if form == "delta":
        from deltalake import DeltaTable

        found: Any = DeltaTable(to).to_pyarrow_table(columns=columns)
    elif form == "iceberg":
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog(CATALOG)
        [name] = [name for space in catalog.list_namespaces() for name in catalog.list_tables(space)]
        found = catalog.load_table(name).scan(selected_fields=tuple(columns)).to_arrow()
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq
        import s3fs

        table = open_table(to, form)
        assert table is not None
        files = s3fs.S3FileSystem(skip_instance_cache=True)
        parts = [pq.read_table(f"{to}/{path}".removeprefix("s3://"), filesystem=files) for path in table.files()]
        found = pa.concat_tables([part.select(columns) for part in parts])
    return sorted(zip(*(found[column].to_pylist() for column in columns), strict=True))


@pytest.mark.parametrize("form", ["delta", "iceberg", "parquet"])
def test_spark_D2_two_drivers_on_s3_land_each_record_once(
    endpoint: str, cluster: Cluster, produced: Any, topic: str, tmp_path: Path, form: str
) -> None:
    """Who comes late is refused by name; started again it goes on where the table ends."""
    produced(topic, [{"id": number} for number in range(RECORDS)], partitions=2)
    to, refusals = f"s3://bucket/{form}/table", 0
    running = {name: driver(cluster, topic, to, form, tmp_path / name) for name in ("one", "other")}
    while running:
        for name, process in list(running.items()):
            said, _ = process.communicate()
            del running[name]
            if process.returncode != 0:
                assert "the table ends at" in said or "commits of others came before" in said, said[-3000:]
                refusals += 1
                running[name] = driver(cluster, topic, to, form, tmp_path / name)
    assert refusals > 0, "the two were never at it at the same time"
    assert landed(to, form) == sorted((n % 2, n // 2) for n in range(RECORDS))
