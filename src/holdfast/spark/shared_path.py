"""Whether all executors see the place where the driver writes: a folder that is mounted everywhere, or a bucket.

The driver makes a file with a random token at the location; a task on each executor reads it and makes one of its own,
which the driver reads. So a folder that only has the same name elsewhere is told from one that is shared, and a bucket
is asked with each executor's own keys. Files lie in ``_holdfast/``, as all probes of a table do, and go at the end.

Owns the probe and its words. Needs Holdfast on the executors, as whatever writes there does.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.lake.errors import LakeError, StoreError
from holdfast.lake.store import Store
from holdfast.lake.stores import store_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER: Final = "_holdfast"
TASKS_OF_A_CORE: Final = 4
ROUNDS: Final = 5
"""Jobs that are started until every executor has had a task of one."""


class PathNotSharedError(LakeError):
    """An executor does not see what the driver writes, or the driver not what the executor does; names the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What the driver has put down, and what a task is to look for."""

    location: str
    name: str
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PathAnswer:
    """Of one task. ``wrong`` is None if it has read the token and made the file ``made`` with it."""

    host: str
    folder: str
    """The executor's own: two executors of one host differ by it."""
    made: str
    wrong: str | None


def offered(store: Store) -> Probe:
    """Puts the driver's file down. Raises what the store does."""
    name, token = f"{FOLDER}/shared-{secrets.token_hex(8)}", secrets.token_hex(16)
    store.create(name, token.encode())
    return Probe(location=store.location, name=name, token=token)


def answered(probe: Probe) -> PathAnswer:
    """What an executor finds; writes nothing where the driver's file is not."""
    made = f"{probe.name}-{secrets.token_hex(8)}"
    wrong = None
    try:
        store = store_of(probe.location)
        if store.read(probe.name) != probe.token.encode():
            wrong = f"{probe.name} has another content there"
        else:
            store.create(made, probe.token.encode())
    except Exception as e:  # whatever a disk, or a library of a bucket, has to say
        wrong = f"{type(e).__name__}: {e}"
    return PathAnswer(host=socket.gethostname(), folder=os.getcwd(), made=made, wrong=wrong)


def judge(store: Store, probe: Probe, answers: Sequence[PathAnswer]) -> None:
    """PathNotSharedError for the first host that does not see the driver's file, or whose own one is not seen here."""
    for answer in answers:
        wrong = answer.wrong
        if wrong is None:
            try:
                seen = store.read(answer.made)
            except (OSError, LakeError) as e:
                wrong = f"what was written there is not seen by the driver: {e}"
            else:
                wrong = None if seen == probe.token.encode() else "what was written there is not what the driver reads"
        if wrong is not None:
            raise PathNotSharedError(
                f"location {probe.location!r} is not shared: host {answer.host} (executor in {answer.folder}) does not "
                f"see what the driver on {socket.gethostname()} writes: {wrong}. Mount the same folder at this path on "
                "every machine, or use an s3:// location that each of them may write"
            )


def withdraw(store: Store, probe: Probe, answers: Iterable[PathAnswer]) -> None:
    """Removes the files of a probe, as far as they are seen from here."""
    for name in (probe.name, *(answer.made for answer in answers if answer.wrong is None)):
        with contextlib.suppress(OSError, LakeError):
            store.remove(name)


class SharedPathCheck:
    """Asks each executor once: ``check`` is cheap while there are no new ones, so that it can precede every batch."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._spark = spark
        self._location = location
        self._asked: frozenset[str] = frozenset()

    def check(self) -> None:
        """PathNotSharedError; nothing to ask where the driver runs the tasks (``local[n]``)."""
        context = self._spark.sparkContext
        if context._jsc.isLocal():
            return
        executors = _executors(self._spark)
        if executors and executors <= self._asked:
            return
        store = store_of(self._location)
        try:
            probe = offered(store)
        except StoreError:
            raise
        except Exception as e:
            raise PathNotSharedError(f"location {store.location!r} cannot be written by the driver: {e}") from e
        answers: list[PathAnswer] = []
        try:
            for _ in range(ROUNDS):
                answers += self._round(probe)
                judge(store, probe, answers)
                executors = _executors(self._spark)
                if len({(each.host, each.folder) for each in answers}) >= len(executors):
                    self._asked = executors
                    return
        finally:
            withdraw(store, probe, answers)
        # Not all had a task: they are asked before the next batch. One that writes elsewhere fails the batch's commit.

    def _round(self, probe: Probe) -> list[PathAnswer]:
        context = self._spark.sparkContext
        tasks = TASKS_OF_A_CORE * max(1, context.defaultParallelism)
        found: list[PathAnswer] = context.parallelize(range(tasks), tasks).mapPartitions(_Task(probe)).collect()
        return found


@dataclass(frozen=True, slots=True)
class _Task:
    """The function of a task: one answer."""

    probe: Probe

    def __call__(self, _: Iterable[int]) -> Iterator[PathAnswer]:
        yield answered(self.probe)


def _executors(spark: SparkSession) -> frozenset[str]:
    """The ids of those that there are now."""
    known = spark.sparkContext._jsc.sc().getExecutorIds().mkString(",").split(",")
    return frozenset(each for each in known if each)


def check_shared(spark: SparkSession, location: str) -> None:
    """Once, now: PathNotSharedError names the host that does not see the location, StoreError a place of no known
    kind. A path that is not absolute is the driver's: executors are asked for the absolute one."""
    SharedPathCheck(spark, location).check()
