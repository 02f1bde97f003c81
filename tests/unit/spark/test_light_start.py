"""What the processes that plan import: Spark starts one for each stream, and waits for it."""

import subprocess
import sys

PLANNING = (
    "holdfast.spark.source, holdfast.spark.typed_columns, holdfast.spark.typed_options, holdfast.spark.stream_plan, "
    "holdfast.spark.topics, holdfast.spark.reader"
)


def test_planning_loads_no_kernel_and_no_codec() -> None:
    code = f"import sys, {PLANNING}; print([each for each in ('numba', 'pandas', 'cramjam') if each in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
