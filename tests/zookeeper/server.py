"""The server that these tests use, under the name that they know it by."""

from holdfast.testing.zookeeper import TICK_MS, ZooKeeperServer

__all__ = ["TICK_MS", "ZooKeeperServer"]
