"""One load process: writes or reads as fast as librdkafka can, and says what that took, as one line of JSON.

Calls the librdkafka inside confluent-kafka's wheel through its C interface, so that no Python runs per
record. The client has a limit of its own (on two 2.5 GHz cores about 1.4 M records/s or 1 GB/s, whichever
comes first): where ``client_cpu_s`` nears the run's length, records per second say nothing about the
broker.
"""

from __future__ import annotations

import argparse
import ctypes as c
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import confluent_kafka

PRODUCER, CONSUMER = 0, 1
BATCH = 2000
ERROR_TEXT_SIZE = 512


class Message(c.Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("err", c.c_int),
        ("topic", c.c_void_p),
        ("partition", c.c_int32),
        ("payload", c.c_void_p),
        ("payload_size", c.c_size_t),
        ("key", c.c_void_p),
        ("key_size", c.c_size_t),
        ("offset", c.c_int64),
        ("private", c.c_void_p),
    )


def load_library() -> c.CDLL:
    """librdkafka as the wheel carries it."""
    package = Path(confluent_kafka.__file__).parent
    for pattern in ("confluent_kafka.libs/librdkafka*", "confluent_kafka/.dylibs/librdkafka*"):
        for path in sorted(package.parent.glob(pattern)):
            library = c.CDLL(str(path))
            for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_topic_new", "rd_kafka_queue_new"):
                getattr(library, name).restype = c.c_void_p
            return library
    raise SystemExit("this confluent-kafka was not installed from a wheel: its librdkafka is not beside it")


class Client:
    """A librdkafka handle; settings as in librdkafka's CONFIGURATION."""

    def __init__(self, kind: int, settings: dict[str, object], on_delivery: Any = None) -> None:
        self.lib = load_library()
        conf = c.c_void_p(self.lib.rd_kafka_conf_new())
        text = c.create_string_buffer(ERROR_TEXT_SIZE)
        for key, value in settings.items():
            if self.lib.rd_kafka_conf_set(conf, key.encode(), str(value).encode(), text, c.c_size_t(ERROR_TEXT_SIZE)):
                raise SystemExit(text.value.decode())
        if on_delivery is not None:
            self.lib.rd_kafka_conf_set_dr_msg_cb(conf, on_delivery)
        self.handle = c.c_void_p(self.lib.rd_kafka_new(kind, conf, text, c.c_size_t(ERROR_TEXT_SIZE)))
        if not self.handle:
            raise SystemExit(text.value.decode())

    def topic(self, name: str) -> c.c_void_p:
        return c.c_void_p(self.lib.rd_kafka_topic_new(self.handle, name.encode(), None))

    def end_offset(self, topic: str, partition: int) -> int:
        low, high = c.c_int64(), c.c_int64()
        error = self.lib.rd_kafka_query_watermark_offsets(
            self.handle, topic.encode(), c.c_int32(partition), c.byref(low), c.byref(high), 30_000
        )
        if error:
            raise SystemExit(f"watermarks of {topic}-{partition}: librdkafka error {error}")
        return high.value


class Stopwatch:
    """Wall and CPU time of this process from its creation to ``stop``."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def stop(self, **counts: int) -> dict[str, float]:
        seconds, cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
        return {"seconds": round(seconds, 4), "client_cpu_s": round(cpu, 3), **counts}


def produce(args: argparse.Namespace) -> dict[str, float]:
    """``args.count`` records of one shared random payload, dealt in batches over the partitions."""
    failures: list[int] = []

    @c.CFUNCTYPE(None, c.c_void_p, c.POINTER(Message), c.c_void_p)
    def failed(_handle: Any, message: Any, _opaque: Any) -> None:
        failures.append(message.contents.err)

    settings: dict[str, object] = {
        "bootstrap.servers": args.bootstrap,
        "acks": args.acks,
        "queue.buffering.max.messages": 300_000,
        "queue.buffering.max.kbytes": 1 << 20,
        "delivery.report.only.error": "true",
    }
    client = Client(PRODUCER, settings, failed)
    topic = client.topic(args.topic)
    payload = c.create_string_buffer(os.urandom(args.size), args.size)
    messages = (Message * BATCH)()

    def put(partition: int, count: int) -> None:
        left = count
        while left:
            for message in messages:
                message.err, message.payload, message.payload_size = 0, c.addressof(payload), args.size
            left -= client.lib.rd_kafka_produce_batch(topic, c.c_int32(partition), 0, messages, c.c_int(left))
            client.lib.rd_kafka_poll(client.handle, 2 if left else 0)

    for partition in range(args.partitions):
        put(partition, 1)
    client.lib.rd_kafka_flush(client.handle, 30_000)
    watch, batches = Stopwatch(), max(1, args.count // BATCH)
    for number in range(batches):
        put(number % args.partitions, BATCH)
    while client.lib.rd_kafka_outq_len(client.handle):
        client.lib.rd_kafka_flush(client.handle, 500)
    return watch.stop(records=batches * BATCH, errors=len(failures))


def consume(args: argparse.Namespace) -> dict[str, float]:
    """The last ``args.count`` records, or all of them, from every partition at once."""
    settings: dict[str, object] = {
        "bootstrap.servers": args.bootstrap,
        "group.id": "bench",
        "enable.auto.commit": "false",
        "queued.min.messages": 1_000_000,
        "queued.max.messages.kbytes": 1 << 20,
        "fetch.queue.backoff.ms": 1,
    }
    client = Client(CONSUMER, settings)
    ends = [client.end_offset(args.topic, partition) for partition in range(args.partitions)]
    share = args.count // args.partitions if args.count else max(ends)
    starts = [max(0, end - share) for end in ends]
    topic, queue = client.topic(args.topic), c.c_void_p(client.lib.rd_kafka_queue_new(client.handle))
    # The callback must be C to cost nothing: this accessor only reads a field of the message.
    look = c.cast(client.lib.rd_kafka_message_status, c.c_void_p)
    wanted, got, silent = sum(ends) - sum(starts), 0, 0
    watch = Stopwatch()
    for partition, start in enumerate(starts):
        client.lib.rd_kafka_consume_start_queue(topic, c.c_int32(partition), c.c_int64(start), queue)
    while got < wanted and silent < 20:
        count = client.lib.rd_kafka_consume_callback_queue(queue, 1000, look, None)
        got, silent = got + count, 0 if count else silent + 1
    return watch.stop(records=got, errors=max(0, wanted - got))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["produce", "consume"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--size", type=int, required=True, help="bytes of one value")
    parser.add_argument("--count", type=int, default=0, help="records; for consume 0 means all")
    parser.add_argument("--acks", default="all")
    args = parser.parse_args()
    result = produce(args) if args.what == "produce" else consume(args)
    result["bytes"] = result["records"] * args.size
    print(json.dumps(result), flush=True)
    sys.stdout.flush()
    os._exit(0)  # librdkafka's own end would wait for connections that nobody needs any more


if __name__ == "__main__":
    main()
