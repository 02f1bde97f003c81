"""Brokers of SASL_PLAINTEXT with an authorizer, each a process of its own; coordinators' topics have one partition."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType

from holdfast.testing import free_port, wait_for
from tests.rights.walk import ADMIN, Walk, jaas

STOP_S = 30.0
COMMAND = ["-m", "holdfast.cli.main", "broker"]


class SecuredBrokers:
    """``with SecuredBrokers(folder, users, 2) as brokers:`` runs brokers 1 and 2."""

    def __init__(
        self,
        folder: Path,
        users: Iterable[str],
        count: int,
        store: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """``store``: settings of where the metadata is, other than in a directory that they share."""
        self.folder = folder
        self.ids = range(1, count + 1)
        self.port = free_port(count)
        self._processes: list[subprocess.Popen[bytes]] = []
        names = list(dict.fromkeys(users))
        for broker in self.ids:
            values = {
                "node.id": str(broker),
                "listeners": f"SASL_PLAINTEXT://127.0.0.1:{self.port + broker - 1}",
                "inter.broker.listener.name": "SASL_PLAINTEXT",
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas(names),
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": f"User:{ADMIN}",
                "log.dirs": str(self.log_dir(broker)),
                "offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1",
                "transaction.state.log.num.partitions": "1", "transaction.state.log.replication.factor": "1",
                "transaction.state.log.min.isr": "1", "group.initial.rebalance.delay.ms": "0",
                **({"metadata.log.dirs": str(folder / "meta")} if store is None else store),
                **(settings or {}),
            }  # fmt: skip
            text = "".join(f"{key}={value}\n" for key, value in values.items())
            (folder / f"{broker}.properties").write_text(text)

    def log_dir(self, broker: int) -> Path:
        return self.folder / f"log-dir-{broker}"

    def address(self, broker: int) -> tuple[str, int]:
        return "127.0.0.1", self.port + broker - 1

    def pause(self, broker: int) -> None:
        """Its process is stopped until it is killed, or this ends."""
        self._processes[broker - 1].send_signal(signal.SIGSTOP)

    def __enter__(self) -> SecuredBrokers:
        for broker in self.ids:
            with (self.folder / f"{broker}.log").open("ab") as log:
                command = [sys.executable, *COMMAND, str(self.folder / f"{broker}.properties")]
                self._processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        for broker in self.ids:
            walk = Walk(*self.address(broker))
            wait_for(lambda walk=walk: walk.brokers() == len(self.ids), f"all brokers, at broker {broker}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self._processes:
            process.wait(STOP_S)
