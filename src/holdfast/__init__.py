"""Holdfast: a replicated log that any Kafka client can use and that survives its disks."""

__version__ = "0.1.0"
