"""``holdfast metadata export`` of a running cluster and ``import``: into a new one, and under the logs of the same."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.client.blocking import BlockingClient
from holdfast.client.configs import AlterConfigOp, ConfigTarget, KeyChange, alter_config
from holdfast.testing import Cluster

pytestmark = [pytest.mark.system, pytest.mark.embedded_store]

ASSIGNED = {0: (1, 2), 1: (3, 1), 2: (2, 3)}
RECORDS = [b"record %d" % i for i in range(300)]


def metadata(*args: str | Path) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "holdfast.cli.main", "metadata", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ)
    return done.returncode, done.stdout, done.stderr


def told(cluster: Cluster, topic: str) -> tuple[Any, ...]:
    """What clients and operators see of a topic: its id, its replicas, its own configuration; and of broker 2."""
    with BlockingClient(cluster.bootstrap) as client:
        view = client.metadata([topic]).topics[topic]
        configs = client.run(client.aio.describe_topic_configs([topic]))[topic]
        broker = client.run(client.aio.describe_broker_configs(2))
    return (
        view.topic_id,
        {p.partition: p.replicas for p in view.partitions},
        {c.name: c.value for c in configs if c.source == "DYNAMIC_TOPIC_CONFIG"},
        {c.name: c.value for c in broker if c.source == "DYNAMIC_BROKER_CONFIG"},
    )


def test_a_cluster_begins_with_the_id_that_was_chosen(own_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    chosen = "MkU3OEVBNTcwNTJENDM2Qg"
    home = tmp_path / "new"
    code, out, err = metadata("format", "--data-dir", home, "--cluster-id", chosen)
    assert (code, out.endswith(f" for cluster {chosen}.\n")) == (0, True), err
    cluster = own_cluster(brokers=1, data_dir=home)
    with BlockingClient(cluster.bootstrap) as client:
        assert client.metadata(()).cluster_id == chosen
    cluster.create_topic("t")
    cluster.produce("t", RECORDS[:9])
    assert sum(map(len, cluster.consume("t").values())) == 9
    code, out, err = metadata("format", "--data-dir", home)
    assert (code, out) == (1, "")


def test_a_cluster_is_made_again_from_a_file(own_cluster: Callable[..., Cluster], topic: str, tmp_path: Path) -> None:
    first = own_cluster(brokers=3)
    first.create_topic(topic, assignment=ASSIGNED, config={"retention.ms": "-1"})
    with BlockingClient(first.bootstrap) as client:
        client.metadata(())
        change = [KeyChange(key="log.cleaner.threads", operation=AlterConfigOp.SET, value="2")]
        client.run(alter_config(client.aio, ConfigTarget(broker=2), change))
    first.produce(topic, RECORDS)
    file = tmp_path / "metadata.json"
    code, out, err = metadata("export", file, "--data-dir", first.data_dir)
    assert Path(file).stat().st_mode & 0o777 == 0o600
    assert (code, err) == (0, "")
    cluster_id = json.loads(file.read_text())["cluster_id"]
    exported = re.match(f"Exported cluster {cluster_id} to {re.escape(str(file))}: 3 brokers, ([0-9]+) topic", out)
    assert exported is not None, out
    assert metadata("diff", file, first.data_dir)[0] == 0, "nothing has changed since"
    wanted = told(first, topic)
    assert wanted[1:] == (ASSIGNED, {"retention.ms": "-1"}, {"log.cleaner.threads": "2"})

    # Into a directory that no cluster has used: the same topics, empty, in another cluster.
    other = tmp_path / "other"
    code, out, err = metadata("import", file, "--data-dir", other, "--json")
    imported = json.loads(out)
    assert (code, imported["topics"]) == (0, int(exported[1])), "later there may be more, as clients have theirs made"
    assert imported["cluster_id"] != cluster_id
    second = own_cluster(brokers=3, data_dir=other)
    second.wait_in_sync()
    assert told(second, topic) == wanted
    with BlockingClient(second.bootstrap) as client:
        assert client.metadata(()).cluster_id == imported["cluster_id"]
    second.produce(topic, RECORDS[:9])
    assert sum(map(len, second.consume(topic).values())) == 9
    code, out, err = metadata("import", file, "--data-dir", other)
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert err.startswith("holdfast metadata: ") and "a broker of this cluster runs; stop all of them first" in err
    second.stop()
    code, out, err = metadata("import", file, "--data-dir", other)
    assert (code, out) == (1, "") and "has replicas (" in err

    # All copies of the first one are lost; its logs are there, and go further than the file knows.
    first.produce(topic, RECORDS)
    first.stop()
    code, out, err = metadata("import", file, "--data-dir", first.data_dir, "--with-logs")
    assert (code, out) == (1, "")
    assert f"holds metadata of cluster {cluster_id}: expected an empty one" in err
    for name in ("metadata", "metadata-2"):
        shutil.rmtree(first.data_dir / name)
    code, out, err = metadata("import", file, "--data-dir", first.data_dir)
    assert code == 1 and "or --with-logs if they are those of the exported cluster" in err
    code, out, err = metadata("import", file, "--data-dir", first.data_dir, "--with-logs")
    assert code == 0, err
    assert out.startswith(f"Imported {file} as cluster {cluster_id} into the embedded store {first.data_dir}/metadata")
    first.start()
    first.wait_in_sync()
    assert told(first, topic) == wanted
    found = sorted(record.value or b"" for part in first.consume(topic).values() for record in part)
    assert found == sorted(RECORDS * 2)
    first.produce(topic, [b"goes on"])
