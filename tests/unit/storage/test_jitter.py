"""segment.jitter.ms: chance in when segments roll, so that logs that began together do not roll together."""

from statistics import mean

from holdfast.model.config import LogConfig
from holdfast.model.types import TopicPartition
from holdfast.storage.segment_list import jitter_ms

HOUR_MS = 3_600_000


def test_jitter_differs_by_log_segment_and_broker_and_stays_the_same() -> None:
    config = LogConfig(segment_jitter_ms=HOUR_MS, jitter_seed=7)
    drawn = [jitter_ms(config, TopicPartition("t", p), 0) for p in range(1000)]
    assert drawn == [jitter_ms(config, TopicPartition("t", p), 0) for p in range(1000)]
    assert min(drawn) >= 0 and max(drawn) <= HOUR_MS
    assert 0.45 * HOUR_MS < mean(drawn) < 0.55 * HOUR_MS and len(set(drawn)) > 990
    other = LogConfig(segment_jitter_ms=HOUR_MS, jitter_seed=8)
    assert sum(jitter_ms(other, TopicPartition("t", p), 0) == each for p, each in enumerate(drawn)) < 10
    assert len({jitter_ms(config, TopicPartition("t", 0), base) for base in range(100)}) > 95


def test_without_jitter_there_is_none() -> None:
    assert jitter_ms(LogConfig(jitter_seed=7), TopicPartition("t", 0), 5) == 0
