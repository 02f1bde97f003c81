"""The offsets of a group that a Spark query tells of its batches, reset by clicks in the console."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect
from pyspark.sql.types import LongType, StructField, StructType

from holdfast.client.blocking import BlockingClient
from holdfast.spark.options import parse_read
from holdfast.spark.reader import HoldfastStreamReader
from tests import browsers
from tests.system.console_clicks import context_of, do, followed, planned, tab_of, unlock
from tests.system.console_pages import console_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.testing import Cluster

pytestmark = pytest.mark.spark
OFFSETS = StructType([StructField("offset", LongType())])


def test_a_query_begins_where_its_group_was_reset_to(
    spark: SparkSession, cluster: Cluster, produced: Any, topic: str, tmp_path: Path
) -> None:
    produced(topic, [b"%d" % i for i in range(30)], partitions=3)
    group = f"{topic}-lag"

    def committed() -> dict[int, int]:
        with BlockingClient(cluster.bootstrap) as client:
            return {tp.partition: at.offset for tp, at in client.committed(group).items()}

    stream = spark.readStream.format("holdfast").option("kafka.bootstrap.servers", cluster.bootstrap)
    stream = stream.option("subscribe", topic).option("startingOffsets", "earliest")
    landing = stream.option("commitOffsetsToGroup", group).load().writeStream.format("noop")
    query = landing.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination(120)
    assert query.exception() is None
    assert committed() == {0: 10, 1: 10, 2: 10}
    with (
        console_of(cluster.bootstrap, "--data-dir", str(tmp_path)) as url,
        browsers.browser() as chromium,
        context_of(chromium, url) as context,
        tab_of(context) as page,
    ):
        unlock(page, tmp_path)
        followed(page, "/groups")
        page.get_by_label("Search groups").fill(group)
        page.get_by_role("link", name=group).click()
        page.get_by_role("link", name="Reset offsets…").click()
        planned(page, to="shift", value="-4", topics=f"{topic}:0,2")
        rows = page.locator("tbody tr")
        assert [re.split(r"\s+", row)[-3:] for row in rows.all_inner_texts()] == [["10", "6", "-4"]] * 2
        do(page, "Reset them", confirm=group)
        expect(page.get_by_text(f"{topic}-2: 6")).to_be_visible()
    assert committed() == {0: 6, 1: 10, 2: 6}
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "startingOffsets": f"group:{group}"}
    begins = HoldfastStreamReader(OFFSETS, parse_read(given, streaming=True)).initialOffset()
    assert begins[topic] == {"0": 6, "1": 10, "2": 6}
