"""The middle of ``holdfast demo --hosts``, without Spark: a host loses its power under load and comes back."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from holdfast.cli import demo_hosts
from holdfast.cli.demo import TOPIC, create_topic, demo, is_in_sync
from holdfast.cli.demo_flights import FlightChunk
from holdfast.cli.demo_ledger import Ledger, Load
from holdfast.testing import wait_for

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

ROWS = 60_000
STEP_S = 120.0


def test_a_host_loses_its_power_under_load_and_comes_back() -> None:
    """Every record is acknowledged, at a place of its own, and every broker has all of them in the end."""
    said: list[str] = []
    values = [b"%d" % n + b"x" * 100 for n in range(ROWS)]
    chunk = FlightChunk(keys=[b"%d" % (n % 997) for n in range(ROWS)], values=values)
    with demo_hosts.host_cluster() as cluster:
        load = Load(
            cluster.bootstrap, TOPIC, [chunk], rate_per_s=5_000, ledger=Ledger(ROWS), settings=demo_hosts.PATIENCE
        )
        create_topic(cluster)
        pids = cluster.pids()
        load.start()
        try:
            wait_for(lambda: load.ledger.acked > ROWS // 10, "the load to be under way", timeout_s=STEP_S)
            loss = demo_hosts.HostLoss(cluster, TOPIC, said.append)

            def wait_until(condition: object) -> None:
                wait_for(condition, "the next step", timeout_s=STEP_S)  # type: ignore[arg-type]

            lost = loss.happen(load.ledger, ROWS, wait_until, lambda: is_in_sync(cluster))
            load.join(STEP_S)
            assert (load.is_alive(), load.error, load.ledger.failures, load.ledger.acked) == (False, None, [], ROWS)
            assert load.ledger.duplicates() == 0
            changed = {broker for broker, pid in cluster.pids().items() if pids[broker] != pid}
            assert changed == {lost.host}
        finally:
            load.stop()
            load.join(STEP_S)
    assert lost.led and lost.next_controller not in (None, lost.host)
    assert (lost.session_s, lost.tick_s) == (6.0, 0.5)
    assert lost.session_s / 2 < lost.new_client_s < 60, "silence waits for the session, and for nothing else"
    assert said[0].startswith(f"[red]host-{lost.host} loses its power[/red]: the controller")


def test_where_hosts_cannot_be_made_the_demo_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}")
    result = CliRunner().invoke(demo, ["--hosts", "--data-dir", f"{tmp_path}/demo"])
    assert result.exit_code == 1
    assert "Error: --hosts cannot run here: hosts " in result.output
    both = CliRunner().invoke(demo, ["--hosts", "--lose-a-disk", "--data-dir", f"{tmp_path}/demo"])
    assert both.exit_code == 2
    assert "--lose-a-disk and --hosts: expected one of them" in both.output
