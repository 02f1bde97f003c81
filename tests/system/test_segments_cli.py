"""``holdfast segments dump`` and ``audit --quick`` beside the running brokers whose files they read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.testing import Cluster

pytestmark = pytest.mark.system

RECORDS = 200


def run(cluster: Cluster, *args: str) -> tuple[int, str, str]:
    environment = os.environ | {"HOLDFAST_BOOTSTRAP_SERVER": cluster.bootstrap}
    command = [sys.executable, "-m", "holdfast.cli.main", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    return done.returncode, done.stdout, done.stderr


def audited(cluster: Cluster, topic: str) -> tuple[int, list[dict[str, Any]]]:
    code, out, err = run(cluster, "audit", "--quick", "--json", "--topic", topic)
    assert err == ""
    return code, [json.loads(line) for line in out.splitlines()]


def test_what_brokers_write_is_shown_and_compared(own_cluster: Callable[..., Cluster], topic: str) -> None:
    cluster = own_cluster(brokers=2)
    cluster.create_topic(topic, replication_factor=2)
    cluster.produce(topic, [(b"k", b"value %d" % i) for i in range(RECORDS)])

    folder = cluster.folder_of(1, topic, 0)
    code, out, err = run(cluster, "segments", "dump", str(folder), "--records", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert [row["value"] for row in rows if row["type"] == "record"] == [f"value {i}" for i in range(RECORDS)]
    assert [row["offset"] for row in rows if row["type"] == "record"] == list(range(RECORDS))
    code, out, err = run(cluster, "segments", "dump", str(folder / f"{0:020d}.log"))
    assert (code, err) == (0, "")
    assert all(line.endswith("isvalid: true") for line in out.splitlines()[2:])

    code, lines = audited(cluster, topic)
    assert (code, lines[0]["compared_to"], lines[-1]["records"], lines[-1]["ok"]) == (0, RECORDS, RECORDS, True)
    code, out, err = run(cluster, "audit", "--quick", "--topic", topic)
    assert (code, err, "replicas agree" in out) == (0, "", True)

    with open(cluster.folder_of(2, topic, 0) / f"{0:020d}.log", "r+b") as log:  # the CRC of the first batch
        log.seek(17)
        byte = log.read(1)[0]
        log.seek(17)
        log.write(bytes([byte ^ 1]))
    code, lines = audited(cluster, topic)
    assert (code, [p["kind"] for p in lines[0]["problems"]]) == (1, ["different"])
    damaged = str(cluster.folder_of(2, topic, 0))
    code, _, err = run(cluster, "segments", "dump", damaged)
    assert (code, err) == (
        1, f"holdfast segments: {damaged}/{0:020d}.log: byte 0: the batch at offset 0 fails its CRC\n"
    )  # fmt: skip

    cluster.create_topic(f"{topic}-one", replication_factor=1)
    cluster.produce(f"{topic}-one", [b"alone"])
    code, lines = audited(cluster, f"{topic}-one")
    assert (code, lines[-1]["compared_nothing"]) == (3, True)
