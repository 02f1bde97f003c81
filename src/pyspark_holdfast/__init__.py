"""Found by Spark by its name: ``spark.read.format("holdfast")`` works with no register call.

Spark imports every ``pyspark_*`` module at the first ``format`` of a session, so this one loads next to nothing. A
script that imports it before it makes a session has workers with the Python that runs the script.
"""

from holdfast.spark.python_of_workers import use_this_python
from holdfast.spark.source import HoldfastDataSource as DefaultSource

__all__ = ["DefaultSource"]

use_this_python()
