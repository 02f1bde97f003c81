"""For other people's tests: a real cluster as a context manager, disks that fail, hosts that lose their power, and a
deadline to wait with. The same as fixtures of pytest: holdfast/pytest_plugin.py.

>>> from holdfast.testing import Cluster
>>> with Cluster(brokers=3) as cluster:              # doctest: +SKIP
...     client = SomeKafkaClient(cluster.bootstrap)
...     cluster.kill(cluster.describe().controller_id)
"""

from holdfast.testing.cluster import Cluster, ClusterError, ClusterView, DirView, PartitionView
from holdfast.testing.disks import FAULTS, Disk, DiskFaultUnavailable
from holdfast.testing.host_cluster import HostCluster
from holdfast.testing.hosts import Host, Hosts, HostsUnavailable
from holdfast.testing.ports import free_port
from holdfast.testing.waiting import wait_for

__all__ = [
    "FAULTS",
    "Cluster",
    "ClusterError",
    "ClusterView",
    "DirView",
    "Disk",
    "DiskFaultUnavailable",
    "Host",
    "HostCluster",
    "Hosts",
    "HostsUnavailable",
    "PartitionView",
    "free_port",
    "wait_for",
]
