"""What rights are about: operations, kinds of resources and of patterns, with Kafka's numbers and names.

Values only. ``acl_name`` is how Kafka's commands and znodes write them (``DescribeConfigs``), ``log_name`` how its
audit lines do (``DESCRIBE_CONFIGS``).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of kind CLUSTER."""


class _Named(IntEnum):
    @property
    def acl_name(self) -> str:
        """``DescribeConfigs``."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def log_name(self) -> str:
        """``DESCRIBE_CONFIGS``."""
        return self.name


class Operation(_Named):
    """AclOperation."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceKind(_Named):
    """ResourceType of ACLs; metadata/records.py has that of configurations, with other numbers."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternKind(_Named):
    """PatternType: how the name of an ACL is meant. ANY and MATCH are of filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(_Named):
    """AclPermissionType."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3
