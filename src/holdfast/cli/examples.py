"""Examples for ``--help``: each command shows its own, a group those of all its commands.

A command whose help has an example already is not here.
"""

from __future__ import annotations

from typing import Final

import click

AS_IT_IS: Final = "\b"
"""Before lines that click must not put together."""
MOST: Final = 12
"""Lines that a group shows."""

EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "up": (
        "holdfast up",
        "holdfast up --data-dir my-cluster --brokers 3 --log-dirs 4",
        "holdfast up --data-dir my-cluster --detach",
    ),
    "console": ("holdfast console --bootstrap-server 127.0.0.1:9092 --read-only",),
    "rolling-restart": (
        "holdfast rolling-restart --data-dir my-cluster",
        "holdfast rolling-restart --command 'ssh host-{broker} systemctl restart holdfast' --dry-run",
    ),
    "top": ("holdfast top", "holdfast top --once"),
    "segments dump": ("holdfast segments dump my-cluster/broker-1/log-dir-1/orders-0 --records",),
    "perf produce": ("holdfast perf produce --topic orders --num-records 100000 --record-size 1000",),
    "perf consume": ("holdfast perf consume --topic orders --messages 100000",),
    "metadata export": ("holdfast metadata export metadata.json --data-dir my-cluster",),
    "metadata format": ("holdfast metadata format --data-dir new-cluster --cluster-id MkU3OEVBNTcwNTJENDM2Qg",),
    "metadata secure-znodes": (
        "holdfast metadata secure-znodes --config /etc/holdfast/broker.properties --acl secure",
    ),
    "metadata import": ("holdfast metadata import metadata.json --data-dir new-cluster",),
    "down": ("holdfast down --data-dir my-cluster",),
    "broker": ("holdfast broker /etc/holdfast/broker-1.properties",),
    "topics create": (
        "holdfast topics create orders --partitions 6 --replication-factor 3",
        "holdfast topics create orders --config retention.ms=86400000 --config cleanup.policy=compact",
    ),
    "topics list": ("holdfast topics list --exclude-internal",),
    "topics describe": (
        "holdfast topics describe orders",
        "holdfast topics describe --unavailable-partitions --json",
    ),
    "topics alter": ("holdfast topics alter orders --partitions 12",),
    "topics delete": ("holdfast topics delete orders", "holdfast topics delete --regex 'test-.*' --yes"),
    "topics offsets": ("holdfast topics offsets orders --table",),
    "topics trim": ("holdfast topics trim orders --before-time 2026-01-01T00:00:00",),
    "groups list": ("holdfast groups list --state", "holdfast groups list --state empty,dead"),
    "groups describe": ("holdfast groups describe billing", "holdfast groups describe --all-groups --json"),
    "groups delete": ("holdfast groups delete billing",),
    "groups reset-offsets": (
        "holdfast groups reset-offsets --group billing --topic orders --to-earliest",
        "holdfast groups reset-offsets --group billing --topic orders:0 --shift-by -100 --execute",
    ),
    "groups delete-offsets": ("holdfast groups delete-offsets --group billing --topic orders",),
    "transactions list": ("holdfast transactions list --json",),
    "transactions describe": ("holdfast transactions describe --transactional-id billing-1",),
    "transactions describe-producers": ("holdfast transactions describe-producers --topic orders --partition 0",),
    "transactions find-hanging": ("holdfast transactions find-hanging --topic orders",),
    "transactions abort": ("holdfast transactions abort --topic orders --partition 0 --start-offset 4711",),
    "log-dirs inspect": ("holdfast log-dirs inspect /disk1 /disk2",),
    "log-dirs move": (
        "holdfast log-dirs move orders-0 orders-3 --broker 1 --to /disk2",
        "holdfast log-dirs move --broker 1 --from /disk1 --to /disk2",
    ),
    "log-dirs cordon": ("holdfast log-dirs cordon --broker 1 /disk1",),
    "log-dirs uncordon": ("holdfast log-dirs uncordon --broker 1 --all",),
    "log-dirs offline": ("holdfast log-dirs offline --broker 1 /disk1",),
    "log-dirs online": ("holdfast log-dirs online --broker 1 /disk1",),
    "log-dirs add": ("holdfast log-dirs add --broker 1 /disk3",),
    "log-dirs remove": ("holdfast log-dirs remove --broker 1 /disk1 --check",),
    "configs describe": ("holdfast configs describe --topic orders", "holdfast configs describe --broker 1 --all"),
    "configs unset": ("holdfast configs unset --topic orders retention.ms",),
    "acls list": ("holdfast acls list --topic orders", "holdfast acls list --principal User:alice --json"),
    "acls add": (
        "holdfast acls add --allow-principal User:alice --producer --topic orders",
        "holdfast acls add --allow-principal User:bob --consumer --topic 'pay-' --group 'pay-' "
        "--resource-pattern-type prefixed",
    ),
    "acls remove": ("holdfast acls remove --allow-principal User:alice --operation Write --topic orders",),
    "users list": ("holdfast users list", "holdfast users list alice --json"),
    "users set": (
        "holdfast users set alice",
        "holdfast users set alice --password-file /run/secrets/alice --iterations 8192",
    ),
    "users remove": ("holdfast users remove alice --mechanism SCRAM-SHA-256",),
    "quotas list": ("holdfast quotas list --user alice", "holdfast quotas list --json"),
    "quotas unset": ("holdfast quotas unset --user alice producer_byte_rate",),
    "brokers ids list": ("holdfast brokers ids list",),
    "brokers ids set": ("holdfast brokers ids set host-7 7",),
    "brokers ids forget": ("holdfast brokers ids forget host-7",),
    "cluster describe": ("holdfast cluster describe",),
    "cluster health": ("holdfast cluster health || echo 'look at it'",),
    "cluster unregister": ("holdfast cluster unregister --id 4",),
    "metadata check": ("holdfast metadata check --data-dir my-cluster",),
    "metadata dump": ("holdfast metadata dump --data-dir my-cluster > before.txt",),
    "metadata tree": ("holdfast metadata tree --data-dir my-cluster",),
    "metadata diff": ("holdfast metadata diff before.txt my-cluster",),
    "metadata migrate": ("holdfast metadata migrate --to zookeeper --data-dir my-cluster --connect zoo-1:2181",),
    "metadata force": ("holdfast metadata force my-cluster/metadata-2 --data-dir my-cluster",),
    "metadata recover": ("holdfast metadata recover --data-dir my-cluster", "holdfast metadata recover --execute"
                         " --data-dir my-cluster"),
    "metadata confirm": ("holdfast metadata confirm --data-dir my-cluster",),
    "reassign generate": (
        "echo '{\"version\":1,\"topics\":[{\"topic\":\"orders\"}]}' > topics.json",
        "holdfast reassign generate --topics-to-move-json-file topics.json --broker-list 1,2,3",
    ),
    "reassign execute": (
        "echo '{\"version\":1,\"partitions\":[{\"topic\":\"orders\",\"partition\":0,\"replicas\":[2,3],"
        "\"log_dirs\":[\"any\",\"/disk1\"]}]}' > plan.json",
        "holdfast reassign execute --reassignment-json-file plan.json --throttle 50000000",
    ),
    "reassign verify": ("holdfast reassign verify --reassignment-json-file plan.json",),
    "reassign cancel": ("holdfast reassign cancel --reassignment-json-file plan.json",),
    "reassign list": ("holdfast reassign list",),
    "reassign rebalance": (
        "holdfast reassign rebalance --plan even.json --execute",
        "holdfast reassign rebalance --drain 3 --plan drain.json --execute --throttle 50000000",
    ),
    "elect": (
        "holdfast elect preferred --all-topic-partitions",
        "holdfast elect unclean --topic orders --partition 0",
    ),
    "features describe": ("holdfast features describe",),
    "features upgrade": ("holdfast features upgrade --feature transaction.version=2",),
    "features downgrade": ("holdfast features downgrade --feature transaction.version=1 --dry-run",),
    "features disable": ("holdfast features disable --feature transaction.version",),
    "capacity": ("holdfast capacity --data 40TB",),
    "demo": ("holdfast demo", "holdfast demo --lose-a-disk"),
    "lake": ("holdfast lake --topic orders --to lake/orders --checkpoint lake-state --available-now",),
    "lake status": ("holdfast lake status --to lake/orders -b 127.0.0.1:9092",),
    "lake maintain": ("holdfast lake maintain --to lake/orders",),
    "spark doctor": ("holdfast spark doctor --master spark://host-1:7077 -b 127.0.0.1:9092",),
    "audit": ("holdfast audit --topic orders",),
}  # fmt: skip
"""Path of a command -> lines that a shell takes."""


def with_examples(command: click.Command, path: str) -> click.Command:
    """The same command, that shows its examples, and so do those within it."""
    own = EXAMPLES.get(path)
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            with_examples(each, f"{path} {name}")
        own = own or tuple(lines[0] for of, lines in EXAMPLES.items() if of.startswith(f"{path} "))[:MOST]
    if own and command.epilog is None:
        command.epilog = "\n".join((AS_IT_IS, "Examples:", *(f"  {line}" for line in own)))
    return command
