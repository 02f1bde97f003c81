"""``other_engine.py FORMAT LOCATION JARS``: Spark with Delta's or Iceberg's own jars, at work on a lake's table.

Takes commands from standard input, a line each, and answers each with a line of JSON:

    maintain NUMBER     OPTIMIZE or rewrite_data_files, a new column, expiry: turn by turn
    read                rows, sums, a hash of the names, types, and a time as text in UTC

Stands alone: it is also run by the Python of another PySpark, without Holdfast.
"""

import json
import sys
from pathlib import Path
from typing import Any

TRIES = 20
CATALOG = "holdfast"
"""pyiceberg's name of the catalog, which is in each row of the file."""


def delta_settings() -> dict[str, str]:
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    }


def iceberg_settings(location: str) -> dict[str, str]:
    folder = Path(location).parent
    name = f"spark.sql.catalog.{CATALOG}"
    return {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        name: "org.apache.iceberg.spark.SparkCatalog",
        f"{name}.type": "jdbc",
        f"{name}.uri": f"jdbc:sqlite:{folder}/iceberg-catalog.db?busy_timeout=10000",
        f"{name}.warehouse": f"file://{folder}",
        f"{name}.cache-enabled": "false",
    }


def statements(form: str, table: str, number: int) -> str:
    """What this engine does to the table, turn by turn."""
    if number % 3 == 1:
        return f"ALTER TABLE {table} ADD COLUMNS (other{number} STRING)"
    if form == "delta":
        return f"OPTIMIZE {table}" if number % 3 == 0 else f"VACUUM {table} LITE RETAIN 0 HOURS"
    call, named = f"CALL {CATALOG}.system", table.removeprefix(f"{CATALOG}.")
    if number % 3 == 0:
        return f"{call}.rewrite_data_files(table => '{named}', options => map('min-input-files', '2'))"
    return f"{call}.expire_snapshots(table => '{named}', older_than => now(), retain_last => 1)"


def read(spark: Any, table: str) -> dict[str, Any]:
    frame = spark.table(table)
    sums = frame.selectExpr(
        "count(*)", "sum(_offset)", "sum(_kafka_partition)", "sum(conv(left(md5(name), 8), 16, 10))"
    )
    first = frame.orderBy("_kafka_partition", "_offset").selectExpr("cast(_timestamp as string)").first()
    return {
        "sums": [int(each) for each in sums.first()],
        "types": {name: kind for name, kind in frame.dtypes if not name.startswith("other")},
        "time": first[0],
        "others": sum(name.startswith("other") for name in frame.columns),
    }


def maintained(spark: Any, statement: str) -> dict[str, Any]:
    """Tried again where another commit came first: ALTER TABLE of Iceberg is not, by itself."""
    error = ""
    for _ in range(TRIES):
        try:
            return {"done": statement, "rows": [row.asDict() for row in spark.sql(statement).collect()]}
        except Exception as refused:
            error = str(refused)[:300]
    return {"refused": statement, "error": error}


def main() -> None:
    from pyspark.sql import SparkSession

    form, location, jars = sys.argv[1:]
    builder = SparkSession.builder.appName("other engine").master("local[1]")
    settings = delta_settings() if form == "delta" else iceberg_settings(location)
    settings |= {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    table = f"delta.`{location}`" if form == "delta" else f"{CATALOG}.lake.table"
    for line in sys.stdin:
        command, *given = line.split()
        if command == "maintain":
            answer: dict[str, Any] = maintained(spark, statements(form, table, int(given[0])))
        else:
            answer = read(spark, table)
        print("answer", json.dumps(answer, default=str), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
