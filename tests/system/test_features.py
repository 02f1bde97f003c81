"""Feature levels against real brokers: what ApiVersions tells, ``holdfast features``, and a start anew."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from holdfast.cli.connecting import with_cluster
from holdfast.client.features import FeatureView, describe_features
from holdfast.model.features import NEW_CLUSTER, TRANSACTION_VERSION
from holdfast.testing import Cluster

pytestmark = pytest.mark.system
FAILED = "The update failed for all features since the following feature had an error: Invalid update version"


def run(cluster: Cluster, *args: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "holdfast.cli.main", "features", *args]
    environment = os.environ | {"HOLDFAST_BOOTSTRAP_SERVER": cluster.bootstrap}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    return done.returncode, done.stdout, done.stderr


def level(cluster: Cluster) -> int:
    """As every broker tells it, alike."""
    told = set()
    for address in cluster.bootstrap.split(","):
        (found,), epoch = with_cluster(address, describe_features)
        assert epoch is not None
        assert found[:3] == (TRANSACTION_VERSION, 0, 2)
        told.add(FeatureView(*found).level)
    (one,) = told
    return one


def test_levels_are_changed_by_hand_and_outlive_the_brokers() -> None:
    with Cluster(brokers=2, settings={"offsets.topic.num.partitions": "1"}) as cluster:
        first = NEW_CLUSTER.get(TRANSACTION_VERSION, 0)
        assert level(cluster) == first
        of = f"{TRANSACTION_VERSION}="
        assert run(cluster, "upgrade", "--feature", of + "2") == (0, f"{TRANSACTION_VERSION} was upgraded to 2.\n", "")
        code, out, err = run(cluster, "upgrade", "--feature", of + "1")
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert err.startswith(f"holdfast features: Could not upgrade {TRANSACTION_VERSION} to 1. {FAILED} 1 for ")
        code, out, err = run(cluster, "upgrade", "--feature", of + "1", "--kafka-errors")
        assert (code, err) == (1, "1 out of 1 operation(s) failed.\n")
        assert out.startswith(f"Could not upgrade {TRANSACTION_VERSION} to 1. {FAILED} 1 for feature")
        code, out, _ = run(cluster, "downgrade", "--feature", of + "1", "--dry-run")
        assert (code, out) == (0, f"{TRANSACTION_VERSION} can be downgraded to 1.\n")
        assert level(cluster) == 2
        assert run(cluster, "downgrade", "--feature", of + "1")[0] == 0
        assert level(cluster) == 1
        cluster.stop()
        cluster.start()
        assert level(cluster) == 1
        code, out, _ = run(cluster, "describe")
        assert code == 0
        assert out.startswith(f"Feature: {TRANSACTION_VERSION}") and "FinalizedVersionLevel: 1 " in out
        assert run(cluster, "disable", "--feature", TRANSACTION_VERSION)[1] == f"{TRANSACTION_VERSION} was disabled.\n"
        assert level(cluster) == 0
