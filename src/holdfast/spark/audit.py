"""The audit of all replicas, as a PySpark batch job over their segment files.

    audit_plan      asks the cluster (in-sync replicas, high watermarks, log directories), lists files
    audit_compare   Spark: executors read the segments (audit_scan), replicas' batches are put beside each other
    audit_verdict   what that means: problems, notes, what was compared
    audit_result    the words of the answer

Owns the order of these. It reads segment files, so it runs where the log directories are; it never writes, and asks no
broker for records. docs/audit.md says what is compared and what counts as wrong.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.client.security import SecuritySettings
from holdfast.model.types import TopicPartition
from holdfast.spark.audit_compare import Comparer, Progress
from holdfast.spark.audit_plan import AuditError, PartitionPlan, cut, in_sync_now, make_plan
from holdfast.spark.audit_result import (
    AuditedState,
    AuditResult,
    NotCompared,
    PartitionAudit,
    Problem,
    ProblemKind,
    ReplicaAudit,
)
from holdfast.spark.audit_verdict import Comparison, judge, lagging, not_compared, windows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "AuditError",
    "AuditResult",
    "AuditedState",
    "NotCompared",
    "PartitionAudit",
    "Problem",
    "ProblemKind",
    "Progress",
    "ReplicaAudit",
    "run",
]


def run(
    bootstrap: str,
    topics: Iterable[str] | None = None,
    *,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
    driver_memory: str = "1g",
    security: SecuritySettings | None = None,
) -> AuditResult:
    """Audits the topics (None: all, internal ones too) of a running cluster.

    ``spark``: the session to use; without it the active one, or a new one (with ``driver_memory``) that ends with the
    audit. ``progress`` is called with (tasks done, all tasks). AuditError or a HoldfastError if the cluster cannot be
    asked or a topic is not there.
    """
    began_s = time.monotonic()
    plans = make_plan(bootstrap, topics, security)
    if spark is not None:
        partitions = _audit(bootstrap, plans, spark, progress, security)
    else:
        from pyspark.sql import SparkSession

        from holdfast.spark.session import spark_session

        borrowed = SparkSession.getActiveSession() is not None
        session = spark_session("holdfast audit", driver_memory=driver_memory)
        try:
            partitions = _audit(bootstrap, plans, session, progress, security)
        finally:
            if not borrowed:
                session.stop()
    return AuditResult(
        partitions=partitions, not_compared=not_compared(plans), seconds=round(time.monotonic() - began_s, 3)
    )


def _audit(
    bootstrap: str,
    plans: tuple[PartitionPlan, ...],
    spark: SparkSession,
    progress: Progress | None,
    security: SecuritySettings | None,
) -> tuple[PartitionAudit, ...]:
    with Comparer(spark, cut(plans, parallelism=_parallelism(spark))) as comparer:
        reports = comparer.read(progress)
        windows = {plan.tp: windows_of(plan, reports) for plan in plans}
        compared = comparer.compare(plans, windows)
    short = lagging(plans, reports)
    # A replica that fell behind since we began is no error: the cluster knows.
    in_sync: dict[TopicPartition, tuple[int, ...]] = in_sync_now(bootstrap, short, security) if short else {}
    return tuple(judge(plan, reports, compared.get(plan.tp, Comparison()), in_sync.get(plan.tp)) for plan in plans)


def _parallelism(spark: SparkSession) -> int:
    context = getattr(spark, "_sc", None)  # Spark Connect has none
    return int(context.defaultParallelism) if context is not None else os.cpu_count() or 1
