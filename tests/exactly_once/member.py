"""One member: reads ``in``, writes each record to both outputs and its position to the group, in one transaction.

A process of its own. Ends with 3 when its producer is fenced or cannot go on: whoever started it starts the next one.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.exactly_once.judge import OUTPUTS

GROUP = "exactly-once"
SOURCE = "in"
SESSION_MS = 6_000
TIMEOUT_MS = 10_000
"""Of a transaction."""
AT_ONCE = 100
"""Records a transaction has at most."""
REBOOTSTRAP = "none"
"""librdkafka 2.16 begins again with its bootstrap servers when every broker that it was connected to is gone, though
others live (a producer whose partitions are all led by the broker that dies). Its request that commits the offsets of a
group in a transaction then waits for the coordinator it knew before, and nothing is sent until another broker comes or
goes: docs/decisions/0050."""
CALL_S = 20.0
ABORTS = 0.05
"""Of transactions, whose records were written and are taken back."""


def consumer_of(bootstrap: str, name: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "client.id": name,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 1_000,
            "fetch.wait.max.ms": 50,
            "reconnect.backoff.max.ms": 500,
            "metadata.recovery.strategy": REBOOTSTRAP,
        }
    )


def producer_of(bootstrap: str, name: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "client.id": name,
            "transaction.timeout.ms": TIMEOUT_MS,
            "message.timeout.ms": TIMEOUT_MS,
            "linger.ms": 2,
            "reconnect.backoff.max.ms": 500,
            "metadata.recovery.strategy": REBOOTSTRAP,
        }
    )


def transaction(
    consumer: Consumer, producer: Producer, messages: list[Message], partitions: int, *, takes_back: bool
) -> bool:
    """False if it was aborted, as it is with ``takes_back`` when all is written. KafkaException where the producer
    cannot go on."""
    producer.begin_transaction()
    try:
        for message in messages:
            partition, offset = message.partition() or 0, message.offset() or 0
            text = b"%d:%d:" % (partition, offset) + (message.value() or b"")
            producer.produce(OUTPUTS[0], text, partition=partition)
            producer.produce(OUTPUTS[1], text, partition=(partition + 1) % partitions)
        if takes_back:
            producer.flush(CALL_S)
            producer.abort_transaction(CALL_S)
            return False
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), CALL_S)
        producer.commit_transaction(CALL_S)
    except KafkaException as error:
        why: KafkaError = error.args[0]
        if why.retriable():
            return _finished(producer)
        if not why.txn_requires_abort():
            raise
        producer.abort_transaction(CALL_S)
        return False
    return True


def _finished(producer: Producer) -> bool:
    """A commit that did not end in time goes on until it does."""
    while True:
        try:
            producer.commit_transaction(CALL_S)
            return True
        except KafkaException as error:
            why: KafkaError = error.args[0]
            if why.retriable():
                continue
            if not why.txn_requires_abort():
                raise
            producer.abort_transaction(CALL_S)
            return False


def back(consumer: Consumer) -> None:
    """To what the group has committed: the transaction that was to commit more is not there."""
    for at in consumer.committed(consumer.assignment(), CALL_S):
        consumer.seek(TopicPartition(at.topic, at.partition, at.offset if at.offset >= 0 else 0))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    args = parser.parse_args()
    going = True

    def leave(*_: object) -> None:
        nonlocal going
        going = False

    signal.signal(signal.SIGTERM, leave)
    consumer, producer = consumer_of(args.bootstrap, args.name), producer_of(args.bootstrap, args.name)
    try:
        producer.init_transactions(60)
        consumer.subscribe([SOURCE])
        while going:
            got = [each for each in consumer.consume(AT_ONCE, 0.05) if each.error() is None]
            takes_back = random.random() < ABORTS
            if got and not transaction(consumer, producer, got, args.partitions, takes_back=takes_back):
                back(consumer)
    except KafkaException as error:
        print(f"{args.name}: {error}", file=sys.stderr, flush=True)
        return 3
    finally:
        consumer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
