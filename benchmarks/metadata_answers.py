"""What it costs a broker to tell the metadata of a topic with many partitions; ours and Apache Kafka's.

    python -m benchmarks.metadata_answers                     # both, 5,000 partitions, 200 questions
    python -m benchmarks.metadata_answers --only ours --partitions 300

Each client asks when it starts, and all of them when a leader has changed. One broker of each kind; one client asks by
the topic's name, one question after the other, when nothing else has been going on for a while. Told: CPU milliseconds
of the broker for each question, and what part of a core it takes when idle, which is in them.
"""

from __future__ import annotations

import argparse
import time

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.machine import headline
from benchmarks.tls import PLAIN, START_S, Subject, subjects
from holdfast.testing import wait_for

QUIET_S = 10
TOPIC = "wide"


def asked(subject: Subject, partitions: int, questions: int) -> tuple[float, float]:
    """CPU milliseconds of a question, and the part of a core when idle, after it."""
    admin = AdminClient(subject.client(PLAIN, log_level=0))

    def is_there() -> bool:
        try:
            topics = admin.list_topics(timeout=30).topics
        except confluent_kafka.KafkaException:
            return False
        if TOPIC not in topics:
            admin.create_topics([NewTopic(TOPIC, partitions, 1)])[TOPIC].result(120)
            return False
        return len(topics[TOPIC].partitions) == partitions

    def ask() -> None:
        for _ in range(questions):
            assert len(admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions) == partitions

    wait_for(is_there, f"{subject.name} to have the topic", timeout_s=START_S + 60)
    ask()  # warm
    time.sleep(QUIET_S)
    cost_ms = subject.cost(ask) * 1000 / questions
    time.sleep(QUIET_S)
    return cost_ms, subject.cost(lambda: time.sleep(QUIET_S)) / QUIET_S


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("ours", "kafka"))
    parser.add_argument("--partitions", type=int, default=5000)
    parser.add_argument("--questions", type=int, default=200)
    args = parser.parse_args()
    print(headline())
    for subject, _ in subjects(args.only):
        cost_ms, idle = asked(subject, args.partitions, args.questions)
        print(f"{subject.name}: {cost_ms:.2f} ms of CPU for {args.partitions} partitions, idle {idle:.1%} of a core")


if __name__ == "__main__":
    main()
