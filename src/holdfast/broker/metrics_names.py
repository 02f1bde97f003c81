"""How Kafka's metrics are called: the names that its JMX exporter makes of MBeans by the usual rules."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

_PERCENT = re.compile("(?<=[a-z])Percent$")

SOCKETS: Final = "kafka_server_socket_server_metrics_"
SOCKET_MBEAN: Final = "kafka.server:type=socket-server-metrics,listener=NAME."
"""What is told by listener: how its names begin, and its help."""


@cache
def kafka_name(mbean: str) -> str:
    """``kafka.log:type=LogManager,name=X`` -> ``kafka_log_logmanager_x``; a share ends in ``_percent``."""
    domain, _, rest = mbean.partition(":")
    name = "_".join((*domain.split("."), *(part.partition("=")[2] for part in rest.split(","))))
    return _PERCENT.sub("_percent", name).lower().replace("-", "_")
