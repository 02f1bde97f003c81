"""One run: a topic and its ledger, drivers that die one after the other, and the tables held against the ledger.

The judge is DuckDB, by the tables' own metadata, and the ledger is the producer's: nothing of what landed the rows has
a say in whether they are right.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import fastavro
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.lake.columns import partition_column
from holdfast.lake.opening import open_table
from holdfast.lake.side import side_location
from holdfast.testing import Cluster
from tests.contracts.lake_tables import duckdb_rows, scan_of
from tests.lake_chaos.cells import FATAL, Cell, Drive, Plan
from tests.lake_chaos.driver import AVRO

LIMIT_S = 240
IN_TRANSACTION = 100
"""Records between one look at what was acknowledged and the next; of a transaction, where there are any."""
Place = tuple[int, int]


@dataclass(slots=True)
class Ledger:
    """What was acknowledged: place -> whether it is a good record."""

    places: dict[Place, bool] = field(default_factory=dict)

    def wanted(self, *, good: bool) -> list[Place]:
        return sorted(place for place, each in self.places.items() if each == good)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one run."""

    plan: Plan
    struck: tuple[Cell, ...]
    """Of the blows that were dealt; a driver may be done before its blow is due."""
    wrong: tuple[str, ...]


class Run:
    """One plan on a cluster."""

    def __init__(self, plan: Plan, cluster: Cluster, folder: Path) -> None:
        self.plan, self.cluster, self.folder = plan, cluster, folder
        self.topic = f"lake-chaos-{plan.seed}-{folder.name}"
        self.ledger = Ledger()
        self.struck: list[Cell] = []
        self._written = 0
        folder.mkdir(parents=True)

    def run(self) -> Outcome:
        self._create()
        for number, drive in enumerate((*self.plan.drives, Drive((), "kept"))):
            self._produce()
            self._drive(number, drive)
            self._spoil(drive.checkpoint, number)
        return Outcome(plan=self.plan, struck=tuple(self.struck), wrong=tuple(self._judged()))

    # -- the topic -------------------------------------------------------------------------------------------

    def _create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        copies = min(2, len(self.cluster.pids()))
        for future in admin.create_topics([NewTopic(self.topic, self.plan.partitions, copies)]).values():
            future.result()

    def _produce(self) -> None:
        every = int(1 / self.plan.bad_share) if self.plan.bad_share else 0
        producer = self._producer()
        for first in range(0, self.plan.records, IN_TRANSACTION):
            taken: dict[Place, bool] = {}
            aborted = self.plan.transactions and first // IN_TRANSACTION % 3 == 1
            if self.plan.transactions:
                producer.begin_transaction()
            for _ in range(min(IN_TRANSACTION, self.plan.records - first)):
                good = not every or self._written % every != 0
                self._write(producer, self._value(good), good, taken)
                self._written += 1
            if aborted:
                producer.flush(60)  # or they never get there
                producer.abort_transaction(60)
                continue
            if self.plan.transactions:
                producer.commit_transaction(60)
            left = producer.flush(60)
            assert left == 0, f"{left} records were not acknowledged"
            self.ledger.places.update(taken)

    def _producer(self) -> Producer:
        settings = {"bootstrap.servers": self.cluster.bootstrap, "acks": "all", "enable.idempotence": True}
        if not self.plan.transactions:
            return Producer({**settings, "linger.ms": 5})
        producer = Producer({**settings, "linger.ms": 5, "transactional.id": self.topic})
        producer.init_transactions(60)
        return producer

    def _value(self, good: bool) -> bytes:
        number = self._written
        row = {"id": number, "name": f"n{number % 7}"}
        if self.plan.values == "json":
            return json.dumps(row if good else {"id": f"{number}"}).encode()
        content = io.BytesIO()
        fastavro.schemaless_writer(content, fastavro.parse_schema(json.loads(AVRO)), row)
        return content.getvalue() if good else content.getvalue()[:-1]

    def _write(self, producer: Producer, value: bytes, good: bool, taken: dict[Place, bool]) -> None:
        def noted(error: object, message: object) -> None:
            assert error is None, error
            taken[message.partition(), message.offset()] = good  # type: ignore[attr-defined]

        producer.produce(self.topic, value, partition=self._written % self.plan.partitions, on_delivery=noted)
        producer.poll(0)

    # -- drivers ---------------------------------------------------------------------------------------------

    def _drive(self, number: int, drive: Drive) -> None:
        """One driver, until it has died or is done. One without blows must be done."""
        blows = self.folder / f"drive-{number}"
        blows.mkdir()
        given = {
            "bootstrap": self.cluster.bootstrap,
            "topic": self.topic,
            "to": str(self.folder / "table"),
            "checkpoint": str(self.folder / "checkpoint"),
            "format": self.plan.format,
            "values": self.plan.values,
            "per_batch": max(50, self.plan.records // max(2, len(drive.blows))),
            "blows": [asdict(blow) for blow in drive.blows],
            "folder": str(blows),
            "log": str(self.folder / "spark.log"),
        }
        command = [sys.executable, "-m", "tests.lake_chaos.driver", json.dumps(given)]
        said = self.folder / f"driver-{number}.err"
        with open(said, "w") as errors:
            driver = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            )
        late = threading.Timer(LIMIT_S, os.killpg, (driver.pid, signal.SIGKILL))
        late.start()
        try:
            done = self._served(driver, number)
        finally:
            in_time = late.is_alive()
            late.cancel()
        code = driver.wait(LIMIT_S)
        if code:  # whatever is left of its group
            subprocess.run(["pkill", "-9", "-s", str(driver.pid)], check=False)
        struck = [blow for n, blow in enumerate(drive.blows) if (blows / f"struck-{n}").exists()]
        self.struck += [(self.plan.format, self.plan.values, blow.victim, blow.step) for blow in struck]
        died = code == -signal.SIGKILL and any(blow.victim in FATAL for blow in struck)
        what = f"with {code}" if in_time else f"in {LIMIT_S} s"
        assert done or died, f"driver {number} did not end {what} as it was to: {said.read_text()[-2000:]}"

    def _served(self, driver: subprocess.Popen[str], number: int) -> bool:
        """Brokers are killed as the driver asks; whether it said that it was done."""
        assert driver.stdout is not None and driver.stdin is not None
        done, killed = False, number
        for line in driver.stdout:
            done = done or line.startswith("done ")
            if line.startswith("kill a broker"):
                killed += 1
                self.cluster.kill(killed % len(self.cluster.pids()) + 1)
                self.cluster.revive()
                with suppress(BrokenPipeError):  # it may be dead meanwhile
                    driver.stdin.write("done\n")
                    driver.stdin.flush()
        return done

    def _spoil(self, what: str, number: int) -> None:
        """What may happen to a checkpoint while its driver is dead."""
        checkpoint, backup = self.folder / "checkpoint", self.folder / "backup"
        if what == "deleted":
            shutil.rmtree(checkpoint, ignore_errors=True)
        elif what == "restored" and backup.exists():
            shutil.rmtree(checkpoint, ignore_errors=True)
            shutil.copytree(backup, checkpoint)
        elif what == "cut short":
            offsets = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda each: int(each.name))
            for name in [each.name for each in offsets[-1:]]:
                for lost in (f"offsets/{name}", f"offsets/.{name}.crc", f"commits/{name}", f"commits/.{name}.crc"):
                    (checkpoint / lost).unlink(missing_ok=True)
        if number == 0 and checkpoint.exists():
            shutil.copytree(checkpoint, backup, dirs_exist_ok=True)

    # -- the judge -------------------------------------------------------------------------------------------

    def _judged(self) -> list[str]:
        table = str(self.folder / "table")
        wrong = self._compared("rows", table, self.ledger.wanted(good=True))
        return wrong + self._compared("bad records", side_location(table), self.ledger.wanted(good=False))

    def _compared(self, what: str, location: str, wanted: list[Place]) -> list[str]:
        found = open_table(location, self.plan.format)
        there: list[Place] = []
        if found is not None:
            there = sorted(
                (int(p), int(o))
                for p, o in duckdb_rows(f"SELECT {partition_column(found.format)}, _offset FROM {scan_of(found)}")
            )
        if there == wanted:
            return []
        missing, extra = sorted(set(wanted) - set(there)), sorted(set(there) - set(wanted))
        twice = len(there) - len(set(there))
        return [f"{what}: {len(missing)} missing {missing[:3]}, {len(extra)} extra {extra[:3]}, {twice} twice"]


def folder_of(root: Path, plan: Plan) -> Path:
    return root / f"{os.getpid()}-{plan.seed}"
