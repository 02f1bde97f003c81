"""Apache Kafka's own commands against a cluster of ours, with cordoned log directories (KIP-1066): a program.

    python -m tests.compat.cordon_tools          needs mvn and java

Runs what was recorded of Apache Kafka 4.3.0 (tests/golden/cli/4.3.0/cordon.json) again, in its order: kafka-configs,
kafka-log-dirs, kafka-topics and kafka-reassign-partitions of that release. Prints each command and every line that
differs. Ends with 0 when the exit codes and lines are equal but for what DIFFERENT names.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.peers import kafka

from holdfast.client.blocking import BlockingClient
from holdfast.client.views import NewTopic
from holdfast.testing import Cluster
from tests.system.on_disks import create

RECORDED = json.loads((Path(__file__).parents[1] / "golden/cli/4.3.0/cordon.json").read_text())
MAINS = {
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-log-dirs.sh": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-reassign-partitions.sh": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
}
ONLY_BROKERS = "brokers of ours have no controller endpoint of their own"
DIFFERENT = {
    9: "C28: a path with a slash at its end is the same directory",
    31: "C2, C28: a reassignment to a cordoned broker is refused",
    32: "follows from the one before: nothing is under way",
    47: ONLY_BROKERS,
    49: ONLY_BROKERS,
    50: "follows from the one before: the cordon was not taken off",
}
"""Number of the element -> why its lines are others."""
TOPICS = {5: ("cor1", 10, 3), 22: ("cor_rf2", 6, 2), 44: ("cor_after", 4, 3)}
"""What was created between the commands, by requests."""
PLANS = {"cor.json": [1, 2], "cor2.json": [2, 3]}


def ours(cluster: Cluster, word: str) -> str:
    """A word of a recorded command as it is for this cluster."""
    for number, (host, port) in enumerate(cluster.addresses(), 1):
        word = word.replace(f"127.0.0.1:2219{number}", f"{host}:{port}")
    word = re.sub(r"/kafka/f(\d)/d(\d)", lambda m: str(cluster.log_dir(int(m[1]), int(m[2]) + 1)), word)
    return str(cluster.data_dir / word) if word in PLANS else word


def plain(cluster: Cluster, text: str) -> list[str]:
    """Lines without what differs by nature: ports, directories, frames of a stack, threads, where replicas lie."""
    text = re.sub(r"(\n\tat [^\n]*|\n\t\.\.\. \d+ more)+", "\n\t(stack frames left out)", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "HOST", text)
    for broker in (1, 2, 3):
        for number in (1, 2):
            text = text.replace(str(cluster.log_dir(broker, number)), f"/kafka/f{broker}/d{number - 1}")
    text = text.replace(f"{cluster.data_dir}/", "")
    text = re.sub(r"^\[[^]]*\] (ERROR|WARN) ", r"\1 ", text, flags=re.MULTILINE)
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return [_shape(line) if line.startswith('{"brokers"') else line for line in lines]


def _shape(line: str) -> str:
    """kafka-log-dirs' JSON: keys in their order, directories, and how many replicas a broker has."""
    found = json.loads(line)
    shown: list[Any] = [list(found), found["version"]]
    for broker in found["brokers"]:
        dirs = sorted(broker["logDirs"], key=lambda d: d["logDir"])
        keys = {tuple(d) for d in dirs} | {tuple(p) for d in dirs for p in d["partitions"]}
        replicas = sorted(p["partition"] for d in dirs for p in d["partitions"])
        shown.append([broker["broker"], sorted(keys), [(d["logDir"], d["error"]) for d in dirs], replicas])
    return json.dumps(shown)


def run(jars: list[Path], cluster: Cluster, number: int, element: Any) -> list[str]:
    """Runs one command; what is different."""
    tool, *words = element["command"]
    classpath = ":".join(f"{folder}/*" for folder in jars)
    command = [
        "java",
        "-Xmx256M",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        "-cp",
        classpath,
        MAINS[tool],
        *(ours(cluster, word) for word in words),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cluster.data_dir, timeout=120)
    different = [] if done.returncode == element["exit"] else [f"exit {done.returncode}, Kafka: {element['exit']}"]
    for stream, text in (("stdout", done.stdout), ("stderr", done.stderr)):
        wanted, found = plain(cluster, element[stream]), plain(cluster, text)
        found = [line for line in found if not line.startswith("SLF4J") and "StatusLogger" not in line]
        if wanted != found:
            different += [f"{stream} Kafka: {line}" for line in wanted if line not in found]
            different += [f"{stream} ours:  {line}" for line in found if line not in wanted]
    print(f"{number:3} {'differs' if different else 'equal  '} {tool} {' '.join(words[2:])}", flush=True)
    return different


def main() -> int:
    jars = [kafka.fetch(artifact="kafka-tools"), kafka.fetch()]
    wrong = 0
    with Cluster() as cluster:
        create(cluster, "t1", [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2]])
        for name, replicas in PLANS.items():
            entry = {"topic": "cor_rf2", "partition": 0, "replicas": replicas}
            (cluster.data_dir / name).write_text(json.dumps({"version": 1, "partitions": [entry]}))
        for number, element in enumerate(RECORDED):
            if number in TOPICS:
                topic, partitions, factor = TOPICS[number]
                with BlockingClient(cluster.bootstrap) as client:
                    client.create_topic(NewTopic(name=topic, partitions=partitions, replication_factor=factor))
                cluster.wait_in_sync([topic])
            if "command" not in element:
                continue
            if DIFFERENT.get(number) == ONLY_BROKERS:
                print(f"{number:3} left    {ONLY_BROKERS}")
                continue
            different = run(jars, cluster, number, element)
            for line in different:
                print(f"      {line}")
            if different:
                print(f"      {DIFFERENT.get(number, 'NOT EXPECTED')}")
            wrong += bool(different) is not (number in DIFFERENT)
    print(f"{wrong} not as expected")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
