"""What tests/spark/test_on_a_cluster.py submits: read, write and lake, with the answers as JSON in a file.

    cluster_job.py BOOTSTRAP TOPIC FOLDER ELSEWHERE ANSWER

FOLDER is shared by driver and executors, ELSEWHERE is the driver's alone.
"""

import json
import socket
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any


def rows_of(frame: Any) -> list[list[Any]]:
    return sorted([row.partition, row.offset, row.value.decode()] for row in frame.collect())


def work(spark: Any, bootstrap: str, topic: str, folder: str) -> dict[str, Any]:
    """The same on a cluster and in one process: ``folder`` and the topic that is written differ."""
    import pyarrow.dataset as ds

    from holdfast.spark.lake import LakeJob, run

    source = spark.read.format("holdfast").option("kafka.bootstrap.servers", bootstrap)
    read = source.option("subscribe", topic).option("minPartitions", 8).load()

    def counted(rows: Iterable[Any]) -> Iterator[tuple[str, int]]:  # inside, so that it is shipped by value
        yield socket.gethostname(), sum(1 for _ in rows)

    seen = read.rdd.mapPartitions(counted).collect()
    written = f"{topic}-{Path(folder).name}"
    copy = read.select("key", "value", "partition").write.format("holdfast").mode("append")
    copy.option("kafka.bootstrap.servers", bootstrap).option("topic", written).save()
    job = LakeJob(
        bootstrap=bootstrap, topic=topic, to=f"{folder}/table", checkpoint=Path(folder) / "checkpoint",
        available_now=True, schema="n bigint",
    )  # fmt: skip
    landed = run(job, spark)
    files = [str(each) for each in Path(folder, "table").rglob("*.parquet") if not each.name.startswith(".")]
    return {
        "hosts": sorted({host for host, count in seen if count}),
        "read": rows_of(read),
        "written": sorted(value for _, _, value in rows_of(source.option("subscribe", written).load())),
        "landed": [landed.records, landed.bad],
        "files": len(files),
        "table": sorted(ds.dataset(files).to_table(columns=["n"])["n"].to_pylist()),
    }


def refused(spark: Any, bootstrap: str, topic: str, folder: str) -> str:
    from holdfast.spark.lake import LakeJob, run

    job = LakeJob(
        bootstrap=bootstrap, topic=topic, to=f"{folder}/table", checkpoint=Path(folder) / "checkpoint",
        available_now=True, schema="n bigint",
    )  # fmt: skip
    try:
        run(job, spark)
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return ""


def main(bootstrap: str, topic: str, folder: str, elsewhere: str, answer: str) -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("on a cluster").getOrCreate()
    import holdfast

    found = {**work(spark, bootstrap, topic, folder), "refused": refused(spark, bootstrap, topic, elsewhere)}
    found["driver"] = holdfast.__file__
    Path(answer).write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
