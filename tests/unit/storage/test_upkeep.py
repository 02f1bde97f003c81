"""What is done with logs every few seconds (the rest is in test_log_manager.py)."""

from uuid import UUID

from holdfast.model.config import LogConfig
from holdfast.model.types import TopicPartition
from holdfast.storage import upkeep
from holdfast.storage.log import Log
from holdfast.storage.log_manager import LogManager
from tests.unit.storage.conftest import NOW_MS

COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), retention_ms=None)


def test_the_active_segment_of_a_coordinators_log_stays_small(log_dir, files, batch, monkeypatch):
    """No cleaning touches it, and the next coordinator reads all of it."""
    monkeypatch.setattr(upkeep, "STATE_SEGMENT_BYTES", 500)
    logs = LogManager([log_dir], node_id=1, cluster_id="c", config_of=lambda topic: COMPACT)
    made = {
        name: Log.open(log_dir, TopicPartition(name, 0), UUID(int=2), config, clean_shutdown=False, now_ms=NOW_MS)
        for name, config in {"__consumer_offsets": COMPACT, "__kept": LogConfig(), "other": COMPACT}.items()
    }
    for log in made.values():
        logs.held.add(log)

    def segments() -> dict[str, int]:
        logs.upkeep.roll_due(NOW_MS, {"__consumer_offsets", "__kept"})
        return {name: len(log.view.segments) for name, log in made.items()}

    for log in made.values():
        log.append_as_leader(batch(b"v" * 300), 0, NOW_MS)
    assert segments() == {"__consumer_offsets": 1, "__kept": 1, "other": 1}
    for log in made.values():
        log.append_as_leader(batch(b"v" * 300), 0, NOW_MS)
    assert segments() == {"__consumer_offsets": 2, "__kept": 1, "other": 1}
    assert segments() == {"__consumer_offsets": 2, "__kept": 1, "other": 1}
    for log in made.values():
        log.close(clean=False)
