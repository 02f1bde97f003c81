"""Values of topic keys: what Apache Kafka 4.3.0 says of each (its LogConfig.validate), and what is said here."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.model.config import BrokerConfig, LogConfig, check_topic_configs, validate_topic_config
from holdfast.model.config_entries import ConfigSource, describe_topic
from holdfast.model.config_topic_keys import TOPIC_KEYS
from holdfast.model.errors import ConfigError

RECORDED: Final = json.loads(
    (Path(__file__).parents[2] / "golden/configs/topic_values_4.3.0.json").read_text(encoding="utf-8")
)
NO_TIERS = "there is no tiered storage"
OUR_REASONS: Final = {
    ("min.cleanable.dirty.ratio", "NaN"): "Not a number of type DOUBLE",
    ("preallocate", "TRUE"): "files of segments grow as they are written",
    ("preallocate", " true "): "files of segments grow as they are written",
    ("internal.segment.bytes", "-1"): "Value must be at least 1",
    ("internal.segment.bytes", "0"): "Value must be at least 1",
    ("follower.replication.throttled.replicas", "0:1,,1:2"): "must be the literal '*' or a list of replicas",
    ("local.retention.ms", "5"): NO_TIERS,
    ("local.retention.ms", "-1"): NO_TIERS,
    ("remote.storage.enable", "true"): NO_TIERS,
    ("remote.log.copy.disable", "true"): NO_TIERS,
    ("remote.log.delete.on.disable", "true"): NO_TIERS,
}
"""What Kafka takes and what is refused here: values that mean nothing, or that ask for what is not there."""


def refusal(configs: dict[str, str]) -> str | None:
    """What is said of a topic's configuration; None when it is taken."""
    try:
        for key, value in configs.items():
            validate_topic_config(key, value)
        check_topic_configs(configs)
    except ConfigError as e:
        return str(e)
    return None


@pytest.mark.parametrize("case", RECORDED, ids=[str(case["configs"]) for case in RECORDED])
def test_a_value_is_taken_or_refused_in_kafkas_words(case: dict[str, Any]) -> None:
    said = refusal(case["configs"])
    ours = [OUR_REASONS[item] for item in case["configs"].items() if item in OUR_REASONS]
    if ours:
        assert case["refused"] is None and said is not None and ours[0] in said
        assert next(iter(case["configs"])) in said
    else:
        assert said == case["refused"]


def test_every_key_and_every_reason_is_in_the_recording() -> None:
    recorded = {item for case in RECORDED for item in case["configs"].items()}
    assert {key for key, _ in recorded} >= set(TOPIC_KEYS)
    assert recorded >= set(OUR_REASONS)


def test_an_internal_key_is_told_only_where_it_is_set() -> None:
    assert "internal.segment.bytes" not in {e.key.name for e in describe_topic(BrokerConfig(), {})}
    told = {e.key.name: e for e in describe_topic(BrokerConfig(), {"internal.segment.bytes": "400"})}
    entry = told["internal.segment.bytes"]
    assert (entry.value, entry.source) == ("400", ConfigSource.TOPIC)


def test_every_key_is_told_with_its_meaning() -> None:
    assert all(len(e.key.doc) > 20 for e in describe_topic(BrokerConfig(), {}))


def test_a_list_is_told_without_what_stands_in_it_twice() -> None:
    told = {e.key.name: e.value for e in describe_topic(BrokerConfig(), {"cleanup.policy": "delete,delete"})}
    assert told["cleanup.policy"] == "delete"
    nothing = LogConfig.of(BrokerConfig(), {"cleanup.policy": ""})
    assert not nothing.compact and not nothing.delete


@pytest.mark.parametrize(
    ("overrides", "age_ms"),
    [
        ({"max.compaction.lag.ms": "500"}, 1000),
        ({"max.compaction.lag.ms": "500", "cleanup.policy": "compact"}, 500),
        ({"max.compaction.lag.ms": "5000", "cleanup.policy": "compact"}, 1000),
    ],
)
def test_a_compacted_log_rolls_so_that_it_can_be_cleaned_in_time(overrides: dict[str, str], age_ms: int) -> None:
    assert LogConfig.of(BrokerConfig(), {"segment.ms": "1000", **overrides}).oldest_segment_ms == age_ms


def test_the_brokers_lags_agree_too() -> None:
    lags = {"log.cleaner.min.compaction.lag.ms": "10", "log.cleaner.max.compaction.lag.ms": "5"}
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms \(10\) > log\.cleaner\.max\.compaction\.lag\.ms"):
        BrokerConfig.parse(lags)
