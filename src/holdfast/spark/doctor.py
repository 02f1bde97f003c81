"""``holdfast spark doctor``: what Spark needs to read and write with Holdfast, and where it is missing.

Looks at three places: this process (the driver), the Python that Spark would start as a worker here, and, with a
master, every executor. Owns the list of what is needed and the words for what to do; the probe that runs where Holdfast
may not be installed is doctor_probe.py.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.java.runtime import JavaNotFoundError, find_java
from holdfast.spark import doctor_probe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDED: Final = ("holdfast", "pyarrow", "numpy", "pandas", "kio", "crc32c", "cramjam")
FASTER: Final = ("numba",)
WORKER_MODULES: Final = ("holdfast.spark.fetching", "holdfast.spark.writer", "holdfast.spark.daemon")
DRIVER_MODULES: Final = ("pyspark", "pyspark_holdfast", *WORKER_MODULES)
PROBE_S: Final = 120
TASKS_OF_A_CORE: Final = 4
ROUNDS: Final = 3
PYTHON_VARIABLE: Final = "PYSPARK_PYTHON"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFinding:
    """One thing that was looked at. ``wrong``: what is; None if nothing is. ``cure``: what to do then. A warning slows
    and stops nothing."""

    where: str
    what: str
    found: str
    wrong: str | None = None
    cure: str = ""
    is_warning: bool = False


def examine(
    *, master: str | None = None, brokers: Sequence[tuple[str, int]] = (), path: Path | None = None
) -> Iterator[DoctorFinding]:
    """Everything, in the order in which it is looked at. ``master``: Spark's, whose executors are examined; without one
    none is. ``brokers``: addresses that whoever reads must reach. ``path``: a folder that driver and executors share.
    """
    with _Token(path) as token:
        arguments = (NEEDED + FASTER, DRIVER_MODULES, brokers, token)
        yield from _java()
        name = worker_python()  # before the driver loads what says this Python where nobody has said one
        own = doctor_probe.probe(*arguments)
        yield from judged("driver", own, cure=f"{sys.executable} -m pip install 'holdfast[spark]'")
        worker, problem = _worker_here(name, (NEEDED + FASTER, WORKER_MODULES, (), None))
        yield from _worker(name, worker, problem)
        if master is not None:
            yield from _executors(master, (NEEDED + FASTER, WORKER_MODULES, brokers, token), own)


class _Token:
    """A file of this moment in the folder, so that an executor's folder of the same name is told from this one."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: str | None = None

    def __enter__(self) -> str | None:
        if self._path is not None:
            handle, self._file = tempfile.mkstemp(prefix=".holdfast-doctor-", dir=self._path)
            os.close(handle)
        return self._file

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            os.unlink(self._file)


def _java() -> Iterator[DoctorFinding]:
    try:
        java = find_java()
    except JavaNotFoundError as e:
        yield DoctorFinding(
            where="driver", what="Java", found="none", wrong=str(e), cure="pip install 'holdfast[java]'"
        )
    else:
        yield DoctorFinding(where="driver", what="Java", found=f"{java.version} at {java.home}")


def judged(where: str, seen: Mapping[str, Any], *, cure: str) -> Iterator[DoctorFinding]:
    """What a probe's answer means."""
    yield DoctorFinding(where=where, what="Python", found=f"{seen['python_version']}, {seen['python']}")
    for name, version in seen["versions"].items():
        if version is not None:
            yield DoctorFinding(where=where, what=name, found=version)
        elif name in FASTER:
            wrong = f"{name} is missing: decoding is right, and slow"
            yield DoctorFinding(where=where, what=name, found="none", wrong=wrong, cure=cure, is_warning=True)
        else:
            yield DoctorFinding(where=where, what=name, found="none", wrong=f"{name} is missing", cure=cure)
    there = all(seen["versions"].get(name) is not None for name in NEEDED)
    for name, error in seen["modules"].items():
        if error and there:  # else the package that is missing has been told
            yield DoctorFinding(where=where, what=name, found="no import", wrong=f"import {name}: {error}", cure=cure)
    for address, error in seen["brokers"].items():
        yield DoctorFinding(
            where=where, what=f"broker {address}", found="no connection" if error else "reached", wrong=error or None,
            cure="every executor fetches by itself: it must reach the advertised listener of every broker",
        )  # fmt: skip
    if seen["path"] is not None:
        yield DoctorFinding(
            where=where, what="shared path", found="not shared" if seen["path"] else "shared",
            wrong=seen["path"] or None, cure="mount the same folder on every machine at the same path",
        )  # fmt: skip


def worker_python(environ: Mapping[str, str] = os.environ) -> str:
    """What Spark starts as a worker, by name, where no session says ``spark.pyspark.python``."""
    return environ.get(PYTHON_VARIABLE) or "python3"


def _worker_here(name: str, arguments: tuple[Any, ...]) -> tuple[Mapping[str, Any] | None, str]:
    """The answer of the Python that workers on this machine are started with, or why there is none."""
    executable = shutil.which(name)
    if executable is None:
        return None, f"{name} is not on the PATH"
    source = Path(doctor_probe.__file__).read_text()
    script = f"{source}\nimport json\nprint(json.dumps(probe(*json.loads(sys.argv[1]))))\n"
    command = [executable, "-c", script, json.dumps(arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        return None, f"{executable}: {e}"
    if done.returncode:
        return None, f"{executable} ended with {done.returncode}: {done.stderr.strip()[-300:]}"
    answer: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer, ""


def _worker(name: str, seen: Mapping[str, Any] | None, problem: str) -> Iterator[DoctorFinding]:
    where = f"worker here ({name})"
    cure = f"export {PYTHON_VARIABLE}={sys.executable}"
    if seen is None:
        yield DoctorFinding(where=where, what="Python", found="none", wrong=problem, cure=cure)
        return
    yield from _version_of_driver(where, seen["python_version"], cure)
    yield from judged(where, seen, cure=cure)


def _version_of_driver(where: str, found: str, cure: str) -> Iterator[DoctorFinding]:
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if found.rpartition(".")[0] != own:
        wrong = f"Python {found}, the driver has {own}: Spark refuses that (PYTHON_VERSION_MISMATCH)"
        yield DoctorFinding(where=where, what="Python", found=found, wrong=wrong, cure=cure)


# -- executors ---------------------------------------------------------------------------------------------------


def _executors(master: str, arguments: tuple[Any, ...], own: Mapping[str, Any]) -> Iterator[DoctorFinding]:
    cure = f"install 'holdfast[spark]' there, or ship it with --archives, and set {PYTHON_VARIABLE} to that Python"
    if unreachable := _unreachable(master):
        yield DoctorFinding(where=master, what="session", found="none", wrong=unreachable, cure="is the master up?")
        return
    try:
        session = _session(master)
    except Exception as e:
        yield DoctorFinding(where=master, what="session", found="none", wrong=_first_line(e), cure="is the master up?")
        return
    try:
        seen, count = _probe_all(session, arguments)
    except Exception as e:
        yield DoctorFinding(where=master, what="task", found="none ran", wrong=_first_line(e), cure=cure)
        return
    finally:
        session.stop()
    for (host, folder), answer in sorted(seen.items()):
        where = f"executor {host}:{folder}"
        yield from judged(where, answer, cure=cure)
        version, here = answer["versions"]["holdfast"], own["versions"]["holdfast"]
        if version is not None and version != here:
            wrong = f"Holdfast {version}, the driver has {here}"
            yield DoctorFinding(where=where, what="holdfast", found=version, wrong=wrong, cure=cure)
    if len(seen) < count:
        yield DoctorFinding(
            where=master, what="executors", found=f"{len(seen)} of {count}", is_warning=True,
            wrong=f"{count - len(seen)} took no task: not examined", cure="run it again while the cluster is idle",
        )  # fmt: skip


def _unreachable(master: str) -> str:
    """Why no master of spark://HOST:PORT,... can be reached; '' if one can, or if it is of another kind. Spark itself
    tries for a minute."""
    if not master.startswith("spark://"):
        return ""
    errors = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            number = int(port)
        except ValueError:
            return f"--master {master}: expected spark://HOST:PORT"
        answer = doctor_probe.probe((), (), [(host, number)], None)["brokers"]
        errors += [f"{where}: {error}" for where, error in answer.items() if error]
        if not errors:
            return ""
    return "; ".join(errors)


def _session(master: str) -> SparkSession:
    from pyspark.sql import SparkSession

    from holdfast.java.runtime import use_java

    use_java()
    builder = SparkSession.builder.appName("holdfast spark doctor").master(master)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # All executors that are granted take part, within a time.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "30s",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _probe_all(
    session: SparkSession, arguments: tuple[Any, ...]
) -> tuple[dict[tuple[str, str], Mapping[str, Any]], int]:
    """The answers by host and folder of the executor, and how many executors there are."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(doctor_probe)  # type: ignore[no-untyped-call]
    context = session.sparkContext
    seen: dict[tuple[str, str], Mapping[str, Any]] = {}
    count = 1
    for _ in range(ROUNDS):
        tasks = TASKS_OF_A_CORE * max(1, context.defaultParallelism)
        rows = context.parallelize(range(tasks), tasks).mapPartitions(doctor_probe.of_tasks(arguments)).collect()
        seen.update({(row["host"], row["folder"]): row for row in rows})
        # The driver is one of these, and the only one of a local session.
        count = max(1, context._jsc.sc().getExecutorMemoryStatus().size() - 1)
        if len(seen) >= count:
            break
    return seen, count


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if "Error" in line or "No module" in line or "PYTHON_VERSION" in line]
    return f"{type(error).__name__}: {(told or lines or [''])[0].strip()[:300]}"
