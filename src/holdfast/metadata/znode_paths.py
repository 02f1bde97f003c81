"""Where everything is in ZooKeeper's tree: the paths of Kafka 3.x, and of ours below /holdfast.

Paths are below the chroot, which nothing here knows. What the nodes say: znode_values.py and znode_notices.py.
"""

from typing import Final
from urllib.parse import quote, unquote

from holdfast.metadata.records import ResourceType
from holdfast.model.types import BrokerId

CONTROLLER: Final = "/controller"
"""Ephemeral, of the broker that is the controller."""
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER: Final = "/cluster"
CLUSTER_ID: Final = "/cluster/id"
FEATURE: Final = "/feature"
PRODUCER_IDS: Final = "/latest_producer_id_block"
BROKER_IDS: Final = "/brokers/ids"
"""A node for each broker that lives, ephemeral, of that broker."""
BROKER_SEQUENCE: Final = "/brokers/seqid"
"""Its version counts the broker ids that were given out."""
HOSTS: Final = "/brokers/hosts"
"""A node for each host: which broker id it has (KIP-426). Names as in OUR_CONFIGS, but with colons and brackets."""
TOPICS: Final = "/brokers/topics"
TOPIC_CONFIGS: Final = "/config/topics"
BROKER_CONFIGS: Final = "/config/brokers"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE: Final = "/config/changes/config_change_"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
LOG_DIR_EVENT: Final = "/log_dir_event_notification/log_dir_event_"
ISR_CHANGES: Final = "/isr_change_notification"
ISR_CHANGE: Final = "/isr_change_notification/isr_change_"
"""Of a sequence, as CONFIG_CHANGE and LOG_DIR_EVENT are: ZooKeeper appends ten digits."""
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"

OURS: Final = "/holdfast"
OUR_BROKERS: Final = "/holdfast/brokers"
"""A node for each registered broker, alive or not, written by the controller."""
OUR_CONFIGS: Final = "/holdfast/configs"
"""Configurations of resources that Kafka has no nodes for, each as TYPE:NAME, the name with %XX as in addresses."""
CLAIMED_IDS: Final = "/holdfast/claimed_ids"
"""A node for each broker id that a start has taken and that has not registered since. Whoever changes anything of who
has which id writes this node itself too, at the version from which it went."""
METADATA_LOG: Final = "/holdfast/metadata_log"
"""Where the metadata log ends, and who wrote that."""
UNFINISHED: Final = "/holdfast/unfinished"
"""What a commit is in the middle of that is too large for one multi; without data: nothing."""
MOVED: Final = "/holdfast/moved"
"""Only in a tree that no broker may use: where the metadata is instead (moved.py)."""

BASE: Final = (
    "/consumers", "/brokers", BROKER_IDS, TOPICS, "/config", CONFIG_CHANGES, "/admin", DELETE_TOPICS, BROKER_SEQUENCE,
    ISR_CHANGES, PRODUCER_IDS, LOG_DIR_EVENTS, TOPIC_CONFIGS, "/config/clients", "/config/users", BROKER_CONFIGS,
    "/config/ips",
)  # fmt: skip
"""What every tree has, without data at first, in the order in which Kafka makes it."""
OUR_BASE: Final = (OURS, OUR_BROKERS, OUR_CONFIGS, METADATA_LOG, UNFINISHED, CLAIMED_IDS, HOSTS)
"""Likewise, and made by us alone."""

_DEFAULT: Final = "<default>"
_HOST_SAFE: Final = ":[]@,+="


def broker_id(broker: BrokerId) -> str:
    """The registration of a broker that lives."""
    return f"{BROKER_IDS}/{broker}"


def our_broker(broker: BrokerId) -> str:
    """What the cluster knows of a broker."""
    return f"{OUR_BROKERS}/{broker}"


def host(name: str) -> str:
    """Which broker id a host has."""
    text = quote(name, safe=_HOST_SAFE)
    return f"{HOSTS}/{text.replace('.', '%2E') if text in ('.', '..') else text}"


def host_of(path: str) -> str | None:
    """The host of a node below ``HOSTS``; None: it is not written as ``host`` writes it."""
    name = unquote(path.rpartition("/")[2])
    return name if host(name) == path else None


def claimed_id(broker: BrokerId) -> str:
    """Who has taken a broker id."""
    return f"{CLAIMED_IDS}/{broker}"


def topic(name: str) -> str:
    """A topic's assignment."""
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    """Above a topic's partitions."""
    return f"{TOPICS}/{name}/partitions"


def partition(name: str, number: int) -> str:
    """Above one partition's state."""
    return f"{TOPICS}/{name}/partitions/{number}"


def state(name: str, number: int) -> str:
    """One partition's state."""
    return f"{TOPICS}/{name}/partitions/{number}/state"


def delete_topic(name: str) -> str:
    """The request that a topic be deleted; the node has no data."""
    return f"{DELETE_TOPICS}/{name}"


def config_entity(resource_type: int, name: str) -> str | None:
    """The entity of a configuration, as a change names it: topics/T, brokers/1, brokers/<default>; None: Kafka has no
    node for it."""
    if resource_type == ResourceType.TOPIC:
        return f"topics/{name}"
    if resource_type == ResourceType.BROKER and (not name or _number(name) is not None):
        return f"brokers/{name or _DEFAULT}"
    return None


def config(resource_type: int, name: str) -> str:
    """The configuration of a resource."""
    entity = config_entity(resource_type, name)
    return f"{OUR_CONFIGS}/{resource_type}:{quote(name, safe='')}" if entity is None else f"/config/{entity}"


def config_resource(path: str) -> tuple[int, str] | None:
    """The resource whose configuration is at ``path``; None: this is no such path, or not one of ours to read."""
    parent, _, last = path.rpartition("/")
    if parent == TOPIC_CONFIGS:
        return int(ResourceType.TOPIC), last
    if parent == BROKER_CONFIGS and (last == _DEFAULT or _number(last) is not None):
        return int(ResourceType.BROKER), "" if last == _DEFAULT else last
    if parent == OUR_CONFIGS:
        kind, _, name = last.partition(":")
        number = _number(kind)
        if number is not None and config(number, unquote(name)) == path:
            return number, unquote(name)
    return None


def broker_of(path: str) -> BrokerId | None:
    """The broker of a node below ``BROKER_IDS`` or ``OUR_BROKERS``; None: the name is no broker id."""
    return _number(path.rpartition("/")[2])


def name_of(path: str) -> str:
    """The last part of a path."""
    return path.rpartition("/")[2]


def sequence_of(path: str, prefix: str) -> int | None:
    """The number that ZooKeeper gave a node of the sequence ``prefix``; None: it is not of it."""
    digits = path.removeprefix(prefix)
    if not path.startswith(prefix) or len(digits) < 10 or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits)


def _number(text: str) -> int | None:
    """A number as Kafka writes it in a name, without sign and leading zeros."""
    if text.isascii() and text.isdigit() and len(text) <= 10 and (text == "0" or text[0] != "0"):
        return int(text)
    return None
