"""Have leaders elected by hand: ElectLeaders (43). A function over an AdminClient, with one outcome per partition."""

from collections.abc import Iterable

from holdfast.client.admin import CONTROLLER_TIMEOUT_MS, AdminClient
from holdfast.client.cluster import milliseconds
from holdfast.client.refused import raise_for, refusal
from holdfast.model.errors import HoldfastError
from holdfast.model.types import TopicPartition

PREFERRED, UNCLEAN = 0, 1


async def elect_leaders(
    client: AdminClient, partitions: Iterable[TopicPartition] | None, *, unclean: bool
) -> dict[TopicPartition, HoldfastError | None]:
    """None where one was elected, else why not; of all partitions (None) only those that had something to elect.

    Not retried: the first answer may be lost although the election took place.
    """
    from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
    from kio.schema.types import TopicName
    from kio.static.primitive import i8, i32

    topics = None
    if partitions is not None:
        by_topic: dict[str, list[i32]] = {}
        for tp in partitions:
            by_topic.setdefault(tp.topic, []).append(i32(tp.partition))
        topics = tuple(TopicPartitions(topic=TopicName(t), partitions=tuple(ps)) for t, ps in by_topic.items())
    answer = await client.ask_controller(
        ElectLeadersRequest(
            election_type=i8(UNCLEAN if unclean else PREFERRED),
            topic_partitions=topics,
            timeout=milliseconds(CONTROLLER_TIMEOUT_MS),
        )
    )
    raise_for(answer.error_code.value, None, "election")
    return {
        TopicPartition(str(t.topic), int(p.partition_id)): refusal(p.error_code.value, p.error_message)
        for t in answer.replica_election_results
        for p in t.partition_result
    }
