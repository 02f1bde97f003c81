"""How Kafka's metrics are called: the names that its JMX exporter makes of MBeans by the usual rules."""

from __future__ import annotations


def kafka_name(mbean: str) -> str:
    """``kafka.log:type=LogManager,name=X`` -> ``kafka_log_logmanager_x``."""
    domain, _, rest = mbean.partition(":")
    name = "_".join((*domain.split("."), *(part.partition("=")[2] for part in rest.split(","))))
    return name.lower().replace("-", "_")
