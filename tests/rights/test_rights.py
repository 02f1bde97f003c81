"""Every API, asked with every right and without. With HOLDFAST_REWRITE what Apache Kafka answers is recorded."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from benchmarks.peers.kafka import fetch, missing_tool

from holdfast.protocol.apis import INTERNAL, SPOKEN, ApiKey
from holdfast.testing import free_port
from tests.rights.kafka import SecuredKafka
from tests.rights.page import record, recorded
from tests.rights.samples import BROKERS, KAFKAS, Names
from tests.rights.walk import Kind, Walk, cases, rows, walked

pytestmark = [pytest.mark.system, pytest.mark.embedded_store("brokers of its own")]

THEIRS = tuple(sample for sample in KAFKAS if sample.api in ApiKey.__members__)
OURS = (*THEIRS, *BROKERS)


@pytest.mark.long
@pytest.mark.skipif(missing_tool() is not None, reason="Apache Kafka needs Java and Maven")
def test_apache_kafka_is_asked_the_same(tmp_path: Path) -> None:
    """Short: its recorded answers are compared with ours on the page."""
    port = free_port(2, beside=(500,))
    peer = SecuredKafka(fetch(), tmp_path, port, dict.fromkeys(case.user for case in cases(THEIRS)))
    try:
        peer.format()
        peer.start_missing()
        peer.wait_ready()
        names = Names(log_dir=str(tmp_path / "broker-1/log-dir-1"))
        done = asyncio.run(walked(Walk("127.0.0.1", port, names), THEIRS))
    finally:
        peer.stop()
    assert done.changed == []
    made = list(rows(done.outcomes, THEIRS))
    if os.environ.get("HOLDFAST_REWRITE"):
        record(made)
    assert made == recorded()


def test_every_api_is_walked() -> None:
    """But those by which one logs in, and Envelope, which has a test of its own."""
    walked_through = {sample.api for sample in OURS}
    free = {"API_VERSIONS", "SASL_HANDSHAKE", "SASL_AUTHENTICATE", "ENVELOPE"}
    assert {key.name for key in SPOKEN.keys() | INTERNAL.keys()} - free == walked_through
    assert {case.kind for case in cases(OURS)} == set(Kind)
