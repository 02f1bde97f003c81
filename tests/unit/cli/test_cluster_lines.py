"""``holdfast cluster``: lines that fit one screen, and JSON that has everything."""

from __future__ import annotations

import json

from holdfast.cli.cluster_lines import cluster_json, cluster_lines, health_json, health_lines
from holdfast.client.features import FeatureView
from holdfast.client.health import Finding, Found, Health, Survey
from holdfast.client.survey import BrokerAbout, Members
from holdfast.client.views import BrokerNode, ClusterMetadata
from holdfast.model.types import TopicPartition

NODES = {b: BrokerNode(broker_id=b, host="host", port=9090 + b, rack="r" if b == 1 else None) for b in (1, 2)}
MEMBERS = Members(cluster_id="cid", controller_id=2, brokers=NODES)
OLD = BrokerAbout(
    node=NODES[1], features=(FeatureView("f", 0, 2, 1),), features_epoch=7, protocol="0.1-IV1", error=None
)
NEW = BrokerAbout(node=NODES[2], features=(FeatureView("f", 0, 3, 2), FeatureView("g", 1, 1, 0)), features_epoch=9)
SURVEY = Survey(
    view=ClusterMetadata(cluster_id="cid", controller_id=None, brokers=NODES, topics={}),
    alive=frozenset(NODES),
    min_isr={},
    adding={},
    disks={1: (), 2: "gone"},
)


def test_the_cluster_as_one_screen() -> None:
    assert cluster_lines(MEMBERS, [OLD, NEW], None) == [
        "cluster id  cid",
        "controller  broker 2",
        "features    f=2 (epoch 9)",
        "brokers     2",
        "",
        "BROKER  ADDRESS    RACK  PROTOCOL  FEATURES",
        "     1  host:9091  r     0.1-IV1   f 0-2",
        "     2  host:9092  -     -         f 0-3, g 1-1",
    ]


def test_a_broker_that_tells_nothing_says_so_in_its_line() -> None:
    silent = BrokerAbout(node=NODES[2], error="cannot connect to host:9092: connection refused")
    nobody = Members(cluster_id="cid", controller_id=None, brokers=NODES)
    lines = cluster_lines(nobody, [silent], None)
    assert lines[1:3] == ["controller  none", "features    -"]
    assert lines[-1].endswith("does not answer: cannot connect to host:9092: connection refused")
    assert all(len(line) <= 60 for line in cluster_lines(nobody, [silent], 60))


def test_the_cluster_as_json() -> None:
    document = json.loads(cluster_json(MEMBERS, [OLD, NEW]))
    assert (document["cluster_id"], document["controller"]) == ("cid", 2)
    assert document["features"] == {"epoch": 9, "levels": {"f": 2}}
    assert document["brokers"][0] == {
        "id": 1,
        "host": "host",
        "port": 9091,
        "rack": "r",
        "protocol": "0.1-IV1",
        "features": {"f": {"min": 0, "max": 2}},
        "error": None,
    }


def many(count: int) -> Found:
    tps = tuple(TopicPartition("a-topic-of-some-length", n) for n in range(count))
    return Found(kind=Finding.NO_LEADER, text=f"{count} partitions have no leader", partitions=tps)


def test_a_healthy_cluster_is_four_lines() -> None:
    lines = health_lines(SURVEY, Health(problems=(), notices=()), None)
    assert lines == [
        "cluster cid: healthy",
        "brokers: 2 alive, controller none",
        "topics: 0, partitions: 0",
        "log directories: none told",
    ]


def test_whatever_is_wrong_it_is_one_screen_and_json_has_all() -> None:
    disks = tuple(
        Found(kind=Finding.LOG_DIR, text=f"broker 1: /d{n} is offline", broker=1, log_dir=f"/d{n}", state="offline")
        for n in range(30)
    )
    health = Health(problems=(many(39_000), *disks), notices=())
    lines = health_lines(SURVEY, health, None)
    assert lines[0] == "cluster cid: NOT healthy"
    assert lines[4:6] == [
        "problems:",
        "  39000 partitions have no leader: a-topic-of-some-length-0, a-topic-of-some-length-1, "
        "a-topic-of-some-length-2, a-topic-of-some-length-3, a-topic-of-some-length-4 and 38995 more",
    ]
    assert lines[-1] == "  and 16 more: --json has all"
    assert len(lines) <= 24
    assert max(map(len, health_lines(SURVEY, health, 80))) <= 80
    document = json.loads(health_json(SURVEY, health))
    assert (document["healthy"], len(document["problems"])) == (False, 31)
    assert len(document["problems"][0]["partitions"]) == 39_000
    assert document["problems"][1] == {
        "kind": "log_dir",
        "text": "broker 1: /d0 is offline",
        "broker": 1,
        "log_dir": "/d0",
        "state": "offline",
    }
