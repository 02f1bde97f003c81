"""A partition of groups that was cleaned loads at once, however many commits were superseded in it."""

import asyncio
import time
from pathlib import Path

from holdfast.storage.cleaning_plan import CleanerSettings
from tests.unit.broker.test_coordinator_loading import NOW_MS, Host, check, commits
from tests.unit.storage.cleaning import clean_log

COMMITS, GROUPS, PIECE = 100_000, 100, 5_000
SEGMENT = 4 << 20
LIMIT_S = 1.0


def test_a_hundred_thousand_superseded_commits_load_at_once(tmp_path: Path) -> None:
    """Of 1,000 live keys. A million of them: benchmarks/coordinator_load.py."""

    async def run() -> None:
        host = Host(tmp_path, processes=True)
        try:
            log = host.partition(0, commits(0, PIECE, GROUPS), segment_bytes=SEGMENT)
            for first in range(PIECE, COMMITS, PIECE):
                log.append_as_leader(commits(first, PIECE, GROUPS), 0, NOW_MS, trusted=True)
            before = log.view.size
            stats = clean_log(log, NOW_MS, settings=CleanerSettings(1 << 24, 0.9, 1 << 20))
            assert stats is not None
            assert log.view.size < SEGMENT + 10 * before / (COMMITS / 1000)  # and the segment that is written to
            began_s = time.perf_counter()
            found = await host.load(0)
            assert time.perf_counter() - began_s < LIMIT_S
            check(found, COMMITS, GROUPS)
        finally:
            host.close()

    asyncio.run(run())
