"""What a run with failing disks draws, and how it judges brokers' logs."""

from __future__ import annotations

import datetime

from holdfast.storage.log_dir import LogDir
from tests.chaos.disks import OFFLINE, disk_faults, wrongly_offline


def line(moment: datetime.datetime, path: str) -> str:
    return f"[{moment:%Y-%m-%dT%H:%M:%S}.250Z] ERROR [broker-1] log dir {path} is offline: EIO (event=dir.offline)\n"


def test_the_same_seed_draws_the_same_faults_and_a_longer_run_begins_alike() -> None:
    faults = disk_faults(7, 100, 0.7)
    assert faults[:40] == disk_faults(7, 40, 0.7)
    assert 55 <= sum(fault is not None for fault in faults) <= 85
    assert disk_faults(7, 100, 0) == (None,) * 100


def test_a_directory_may_be_offline_while_its_disk_is_bad_and_at_no_other_time() -> None:
    noon = datetime.datetime(2030, 1, 2, 12, 0, 0, tzinfo=datetime.UTC)
    minute = datetime.timedelta(minutes=1)
    log = line(noon, "/d/1") + "[...] INFO another line\n" + line(noon + minute, "/d/1") + line(noon, "/d/2")
    bad = {"/d/1": [(noon.timestamp() - 5, noon.timestamp() + 5)]}
    assert wrongly_offline(log, bad) == [line(noon + minute, "/d/1").strip(), line(noon, "/d/2").strip()]
    assert wrongly_offline(log, {**bad, "/d/2": [(0.0, float("inf"))]}) == [line(noon + minute, "/d/1").strip()]


def test_it_is_what_brokers_say() -> None:
    """The text is that of the log directory itself."""
    import inspect

    assert '"log dir %s is offline: %s"' in inspect.getsource(LogDir.mark_offline)
    assert OFFLINE.search(line(datetime.datetime(2030, 1, 2), "/d/1"))
