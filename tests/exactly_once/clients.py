"""The commands that start a member: of confluent-kafka, of Kafka's Java client, of franz-go."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.peers import kafka

from tests.exactly_once.member import ABORTS

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CLIENTS: Final = ("confluent", "java", "franz")


class ToolMissingError(Exception):
    """A client cannot be run here; the message names what it needs."""


def commands(clients: Sequence[str], scratch: Path) -> dict[str, Callable[[str, str, int], list[str]]]:
    """By client: (bootstrap, name of the member, partitions) to its command. ``scratch``: for what is built."""
    return {client: _MAKERS[client](scratch) for client in dict.fromkeys(clients)}


def _confluent(_: Path) -> Callable[[str, str, int], list[str]]:
    def command(bootstrap: str, name: str, partitions: int) -> list[str]:
        found = [sys.executable, "-m", "tests.exactly_once.member", "--bootstrap", bootstrap]
        return [*found, "--name", name, "--partitions", str(partitions)]

    return command


def _java(scratch: Path) -> Callable[[str, str, int], list[str]]:
    _need("javac", "jar", "java", "mvn")
    jars = f"{kafka.fetch()}/*"
    classes = scratch / "classes"
    source = HERE / "members" / "Member.java"
    subprocess.run(["javac", "-cp", jars, "-d", str(classes), str(source)], check=True)
    packed, archive = scratch / "member.jar", scratch / "member.jsa"  # classes of folders are not archived
    subprocess.run(["jar", "--create", "--file", str(packed), "-C", str(classes), "."], check=True)
    java = ["java", "-Xmx128M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    path = ["-cp", f"{packed}:{jars}"]
    logged = "-Dorg.slf4j.simpleLogger.defaultLogLevel"
    # A member that starts again is measured: it does not read a thousand classes out of jars each time.
    subprocess.run(
        [*java, "-Xlog:cds=error", f"-XX:ArchiveClassesAtExit={archive}", f"{logged}=off", *path, "Member"], check=True
    )

    def command(bootstrap: str, name: str, partitions: int) -> list[str]:
        found = [*java, f"-XX:SharedArchiveFile={archive}", f"{logged}=warn", *path]
        return [*found, "Member", bootstrap, name, str(partitions), str(ABORTS)]

    return command


def _franz(scratch: Path) -> Callable[[str, str, int], list[str]]:
    _need("go")
    program = scratch / "franz"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=HERE / "members" / "franz", check=True)

    def command(bootstrap: str, name: str, partitions: int) -> list[str]:
        return [str(program), bootstrap, name, str(partitions), str(ABORTS)]

    return command


_MAKERS: Final = {"confluent": _confluent, "java": _java, "franz": _franz}


def _need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            raise ToolMissingError(f"this client needs {tool}, which is not there")
