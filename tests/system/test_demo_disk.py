"""The middle of ``holdfast demo --lose-a-disk``, without Spark: a disk dies under load and comes back."""

from __future__ import annotations

import pytest

from holdfast.cli.demo import TOPIC, create_topic, is_in_sync
from holdfast.cli.demo_disk import WAYS, DiskLoss, start_cluster
from holdfast.cli.demo_flights import FlightChunk
from holdfast.cli.demo_ledger import Ledger, Load
from holdfast.testing import wait_for

pytestmark = pytest.mark.system

ROWS = 60_000


def test_a_disk_is_lost_and_healed_under_load_by_means_that_need_no_root() -> None:
    said: list[str] = []
    cluster, how = start_cluster(3, 2, said.append, WAYS[1:])
    values = [b"%d" % n + b"x" * 100 for n in range(ROWS)]
    chunk = FlightChunk(keys=[b"%d" % (n % 997) for n in range(ROWS)], values=values)
    load = Load(cluster.bootstrap, TOPIC, [chunk], rate_per_s=20_000, ledger=Ledger(ROWS))
    try:
        create_topic(cluster)
        pids = cluster.pids()
        load.start()
        wait_for(lambda: load.ledger.acked > ROWS // 10, "the load to be under way", timeout_s=30)
        loss = DiskLoss(cluster, TOPIC, how, said.append)

        def wait_until(condition: object) -> None:
            wait_for(condition, "the next step", timeout_s=60)  # type: ignore[arg-type]

        lost = loss.happen(load.ledger, ROWS, wait_until, lambda: is_in_sync(cluster))
        load.join(60)
        assert (load.is_alive(), load.error, load.ledger.failures, load.ledger.acked) == (False, None, [], ROWS)
        assert load.ledger.duplicates() == 0
        assert cluster.pids() == pids
    finally:
        load.stop()
        load.join(60)
        cluster.__exit__(None, None, None)
    assert lost.same_process
    assert 0 in lost.led
    assert lost.replicas >= len(lost.led)
    assert 0 <= lost.detected_s < 10
    assert 0 < lost.resumed_s < 10
    assert said[0].startswith("[red]a disk dies[/red]: ")
    assert any(f"log-dirs online --broker {lost.broker} {lost.path}" in line for line in said)
