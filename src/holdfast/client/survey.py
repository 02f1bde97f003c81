"""What has to be asked to know how a cluster is: DescribeCluster (60), Metadata, the disks of every broker.

Functions over an AdminClient, whose ``timeout_s`` bounds them. A broker that does not answer is part of the answer.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import NamedTuple

from holdfast.client.admin import AdminClient
from holdfast.client.configs import broker_values, min_insync_replicas
from holdfast.client.disks import ask_disks, disk_of_kafka
from holdfast.client.features import FeatureView, describe_features
from holdfast.client.health import Survey
from holdfast.client.reassignments import list_reassignments
from holdfast.client.refused import raise_for
from holdfast.client.translate import none_if_negative
from holdfast.client.views import BrokerNode, ClusterMetadata, DiskView
from holdfast.model.errors import HoldfastError, UnsupportedVersionError
from holdfast.model.types import BrokerId, TopicPartition
from holdfast.protocol.operating import ManageLogDirsRequest

PROTOCOL_VERSION = "inter.broker.protocol.version"


class Members(NamedTuple):
    """The brokers that are alive, as the controller has it. Metadata may tell of one for a while after its death."""

    cluster_id: str
    controller_id: BrokerId | None
    brokers: dict[BrokerId, BrokerNode]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAbout:
    """What one broker tells of itself; ``error``: why it told nothing. None: it has no such thing."""

    node: BrokerNode
    features: tuple[FeatureView, ...] = ()
    features_epoch: int | None = None
    protocol: str | None = None
    error: str | None = None


async def members(client: AdminClient) -> Members:
    """Of a broker that is connected."""
    from kio.schema.describe_cluster.v0.request import DescribeClusterRequest

    request = DescribeClusterRequest(include_cluster_authorized_operations=False)

    async def once() -> Members:
        answer = await client.ask_any(request)
        raise_for(answer.error_code.value, answer.error_message, "description of the cluster")
        nodes = (
            BrokerNode(broker_id=int(b.broker_id), host=b.host, port=int(b.port), rack=b.rack) for b in answer.brokers
        )
        return Members(
            cluster_id=answer.cluster_id,
            controller_id=none_if_negative(answer.controller_id),
            brokers={node.broker_id: node for node in sorted(nodes, key=lambda n: n.broker_id)},
        )

    return await client.retrying(once)


async def about_brokers(client: AdminClient, found: Members) -> tuple[BrokerAbout, ...]:
    """All of them, in order of their ids."""
    return tuple(await asyncio.gather(*(_about(client, node) for node in found.brokers.values())))


async def _about(client: AdminClient, node: BrokerNode) -> BrokerAbout:
    try:
        values = await broker_values(client, node.broker_id, (PROTOCOL_VERSION,))
    except HoldfastError as e:
        return BrokerAbout(node=node, error=str(e))
    try:
        features, epoch = await describe_features(client, node.broker_id)
    except HoldfastError:  # before Kafka 3.9 they are not told in a form that is read here
        features, epoch = (), None
    return BrokerAbout(node=node, features=features, features_epoch=epoch, protocol=values.get(PROTOCOL_VERSION))


async def survey(client: AdminClient) -> Survey:
    """Everything that ``judge`` goes by."""
    found = await members(client)
    view = await client.metadata()
    disks, min_isr, adding = await asyncio.gather(
        asyncio.gather(*(_disks(client, broker) for broker in found.brokers)),
        min_insync_replicas(client, sorted(view.topics)),
        _adding(client, view),
    )
    return Survey(
        view=view,
        alive=frozenset(found.brokers),
        min_isr=min_isr,
        adding=adding,
        disks=dict(zip(found.brokers, disks, strict=True)),
    )


async def opinions(client: AdminClient, told: Survey) -> tuple[Survey, ...]:
    """The same survey as each of its brokers sees the partitions: one that has just started may lag behind. A broker
    that does not answer is told of as one that does not tell of its disks."""
    names = sorted(told.view.topics)

    async def of(broker: BrokerId) -> Survey:
        try:
            return replace(told, view=await client.metadata_of(broker, names))
        except HoldfastError as e:
            return replace(told, disks={**told.disks, broker: str(e)})

    return (told, *await asyncio.gather(*map(of, sorted(told.alive))))


async def _adding(client: AdminClient, view: ClusterMetadata) -> dict[TopicPartition, frozenset[BrokerId]]:
    if view.controller_id is None:  # nobody could tell
        return {}
    return {tp: frozenset(each.adding) for tp, each in (await list_reassignments(client)).items()}


async def _disks(client: AdminClient, broker: BrokerId) -> tuple[DiskView, ...] | str:
    """Of a Holdfast broker with states and reasons, of any other what Kafka has a request for."""
    try:
        try:
            return (await ask_disks(client, broker, ManageLogDirsRequest(), client.timeout_s)).disks
        except UnsupportedVersionError:
            return tuple(map(disk_of_kafka, (await client.describe_log_dirs([broker]))[broker]))
    except HoldfastError as e:
        return str(e)
