"""How long a client waits while another one, who has no right to anything, names many things in one request.

    python -m benchmarks.named_things                  # 100 and 90,000 things
    python -m benchmarks.named_things --things 20000

One broker with SASL_PLAINTEXT and an authorizer, and no entries. One client asks ApiVersions, again and again; the
other sends one request of each API. Told, for each: how long its answer took, and the longest wait of the first client
meanwhile, medians of the rounds. With 100 things the request is done at once; what it takes for each of them, times as
many, is what the first client would wait if a large one were done so too.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks.guesses import VERSIONS, ask, broker, logged_in
from benchmarks.machine import headline
from holdfast.broker.entity import build
from holdfast.protocol.apis import ApiKey, request_type
from holdfast.protocol.framing import encode_request

AUTHORIZER: Final = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:ANONYMOUS",
)
NAMED: Final[dict[ApiKey, tuple[int, Callable[[list[str]], dict[str, Any]]]]] = {
    ApiKey.FIND_COORDINATOR: (4, lambda names: {"key_type": 0, "coordinator_keys": names}),
    ApiKey.DESCRIBE_GROUPS: (5, lambda names: {"groups": names}),
    ApiKey.DELETE_GROUPS: (2, lambda names: {"groups_names": names}),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, lambda names: {"transactional_ids": names}),
    ApiKey.METADATA: (8, lambda names: {"topics": [{"name": name} for name in names]}),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        0, lambda names: {"topics": [{"name": name} for name in names], "response_partition_limit": 2000},
    ),
    ApiKey.DESCRIBE_CONFIGS: (
        4, lambda names: {"resources": [{"resource_type": 2, "resource_name": name} for name in names]},
    ),
    ApiKey.DELETE_TOPICS: (4, lambda names: {"topic_names": names, "timeout": 1000}),
}  # fmt: skip


def request_of(api: ApiKey, things: int) -> bytes:
    version, values = NAMED[api]
    entity = build(request_type(api, version), values([f"{i:x}" for i in range(things)]))
    return encode_request(api, version, 1, "named", entity)


def waited(port: int, request: bytes) -> tuple[float, float]:
    """Seconds until the answer, and the longest that the other client waited meanwhile."""
    worst, over, first, other = 0.0, threading.Event(), logged_in(port), logged_in(port)

    def look() -> None:
        nonlocal worst
        while not over.is_set():
            began_s = time.monotonic()
            ask(first, VERSIONS)
            worst = max(worst, time.monotonic() - began_s)

    looking = threading.Thread(target=look)
    looking.start()
    began_s = time.monotonic()
    ask(other, request)
    took_s = time.monotonic() - began_s
    over.set()
    looking.join()
    return took_s, worst


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.named_things", description=__doc__.partition("\n")[0])
    parser.add_argument("--things", type=int, nargs="+", default=[100, 90_000])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(headline(), flush=True)
    print(f"{'api':28}{'things':>8}{'answer s':>10}{'others wait s':>15}")
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder), 100, AUTHORIZER) as (port, _):
        for api in NAMED:
            for things in options.things:
                request = request_of(api, things)
                rounds = [waited(port, request) for _ in range(options.rounds)]
                took_s, worst_s = (statistics.median(each) for each in zip(*rounds, strict=True))
                print(f"{api.name:28}{things:>8}{took_s:>10.3f}{worst_s:>15.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
