"""The names of the data source's options, and the reasons of those that are refused or change nothing. Pure data.

docs/spark.md has them all in tables, which tests keep true; options.py parses what they are given.
"""

from typing import Final

FORMAT_OPTIONS: Final = (
    "format", "schema", "schema.file", "message", "schema.subject", "schema.registry.url", "schema.registry.user",
    "schema.registry.password", "schema.registry.token", "schema.registry.ca", "time.zone",
)  # fmt: skip
"""Each behind ``key.`` and ``value.``: typed_options.py parses them."""
READ_OPTIONS: Final = (
    "subscribe", "subscribePattern", "assign",
    "startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp", "startingOffsetsByTimestampStrategy",
    "endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp",
    "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
    "minPartitions", "maxRecordsPerPartition", "ordering", "failOnDataLoss", "onTopicRecreated", "includeHeaders",
    "pushDownFilters",
    "groupIdPrefix", "commitOffsetsToGroup",
    "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
    *(f"{of}.{name}" for of in ("value", "key") for name in FORMAT_OPTIONS), "value.as", "badRecords",
)  # fmt: skip
WRITE_OPTIONS: Final = ("topic", "includeHeaders")
SPARKS_OWN: Final = ("path", "checkpointLocation", "queryName", "outputMode", "mergeSchema")
"""Options that Spark itself or its callers leave among those of a source."""

_ASYNC: Final = "Spark has it for its own Kafka sink alone"
REFUSED: Final = {
    "asyncProgressTrackingEnabled": _ASYNC,
    "asyncProgressTrackingCheckpointIntervalMs": _ASYNC,
    "_mockSystemTime": "it is a clock for tests of Spark's connector",
}
"""Options of Spark's connector that are not settings of a Kafka client, and why there is nothing like them here."""
FORBIDDEN_READ: Final = {
    "auto.offset.reset": "use the option startingOffsets",
    "key.deserializer": "use the option key.format",
    "value.deserializer": "use the option value.format",
    "enable.auto.commit": "the position is kept in Spark's checkpoint and nowhere else",
    "interceptor.classes": "nothing of the JVM runs on this path",
    "group.id": "no group is joined; commitOffsetsToGroup names one that is told where a stream stands, groupIdPrefix "
    "or kafka.client.id name the reader",
    "metric.reporters": "nothing of the JVM runs on this path",
    "exclude.internal.topics": "a pattern leaves internal topics out; name them in subscribe",
    "internal.leave.group.on.close": "it is internal to Kafka's Java client",
    "internal.throw.on.fetch.stable.offset.unsupported": "it is internal to Kafka's Java client",
}
FORBIDDEN_WRITE: Final = {
    "key.serializer": "keys are written as they are, cast them to string or binary",
    "value.serializer": "values are written as they are, cast them to string or binary",
    "interceptor.classes": "nothing of the JVM runs on this path",
    "transactional.id": "the sink has no transactions",
    "partitioner.class": "a column partition says where a row goes",
    "partitioner.ignore.keys": "a row with a key goes where Kafka's clients look for it",
    "metric.reporters": "nothing of the JVM runs on this path",
}
NO_EFFECT_READ: Final = {
    "max.poll.records": "records come by the batch",
    "max.poll.interval.ms": "no group is joined",
    "session.timeout.ms": "no group is joined",
    "heartbeat.interval.ms": "no group is joined",
    "group.instance.id": "no group is joined",
    "partition.assignment.strategy": "no group is joined",
    "auto.commit.interval.ms": "nothing is committed",
    "fetch.min.bytes": "a fetch is answered when there is something",
    "default.api.timeout.ms": "the driver asks again for 30 s, or as fetchOffset.numRetries says",
    "metadata.max.age.ms": "metadata is asked for with each batch",
    "connections.max.idle.ms": "connections are kept as long as a worker",
    "reconnect.backoff.ms": "pauses grow from 10 ms to 0.5 s",
    "reconnect.backoff.max.ms": "pauses grow from 10 ms to 0.5 s",
    "retry.backoff.ms": "pauses grow from 10 ms to 0.5 s",
    "receive.buffer.bytes": "the system decides",
    "send.buffer.bytes": "the system decides",
    "allow.auto.create.topics": "reading creates no topic",
    "group.protocol": "no group is joined",
    "group.remote.assignor": "no group is joined",
    "auto.include.jmx.reporter": "there are no metrics of a client",
    "client.dns.lookup": "all addresses of a name are tried",
    "enable.metrics.push": "there are no metrics of a client",
    "metadata.recovery.strategy": "the bootstrap servers are asked when no other broker answers",
    "metrics.num.samples": "there are no metrics of a client",
    "metrics.recording.level": "there are no metrics of a client",
    "metrics.sample.window.ms": "there are no metrics of a client",
    "retry.backoff.max.ms": "pauses grow from 10 ms to 0.5 s",
    "socket.connection.setup.timeout.max.ms": "5 s on the driver, request.timeout.ms in a task",
    "socket.connection.setup.timeout.ms": "5 s on the driver, request.timeout.ms in a task",
}
"""Settings of a consumer that change nothing of what is read, for those who come from Spark's own source: they are
taken and warned of, with the reason. Everything else that is not known is refused. docs/spark.md has the table."""
NO_EFFECT_WRITE: Final = {
    "linger.ms": "a task sends what it has gathered",
    "buffer.memory": "a task holds 32 MiB at most",
    "max.block.ms": "delivery.timeout.ms bounds it",
    "max.in.flight.requests.per.connection": "one batch of a partition is under way at a time",
    "max.request.size": "batch.size bounds a request",
    "request.timeout.ms": "delivery.timeout.ms bounds it",
    "retries": "delivery.timeout.ms bounds them",
    "retry.backoff.ms": "pauses grow from 10 ms to 0.5 s",
    "reconnect.backoff.ms": "pauses grow from 10 ms to 0.5 s",
    "reconnect.backoff.max.ms": "pauses grow from 10 ms to 0.5 s",
    "metadata.max.age.ms": "metadata is asked for when a leader is not found",
    "connections.max.idle.ms": "connections are kept as long as a worker",
    "receive.buffer.bytes": "the system decides",
    "send.buffer.bytes": "the system decides",
    "auto.include.jmx.reporter": "there are no metrics of a client",
    "client.dns.lookup": "all addresses of a name are tried",
    "enable.metrics.push": "there are no metrics of a client",
    "metadata.recovery.strategy": "the bootstrap servers are asked when no other broker answers",
    "metrics.num.samples": "there are no metrics of a client",
    "metrics.recording.level": "there are no metrics of a client",
    "metrics.sample.window.ms": "there are no metrics of a client",
    "retry.backoff.max.ms": "pauses grow from 10 ms to 0.5 s",
    "socket.connection.setup.timeout.max.ms": "a connection is tried for 5 s",
    "socket.connection.setup.timeout.ms": "a connection is tried for 5 s",
    "compression.gzip.level": "a codec compresses as it does by default",
    "compression.lz4.level": "a codec compresses as it does by default",
    "compression.zstd.level": "a codec compresses as it does by default",
    "metadata.max.idle.ms": "metadata is asked for when a leader is not found",
    "partitioner.adaptive.partitioning.enable": "rows without a key go to one partition after the other",
    "partitioner.availability.timeout.ms": "rows without a key go to one partition after the other",
    "transaction.timeout.ms": "the sink has no transactions",
}
KAFKA_READ: Final = (
    "bootstrap.servers", "client.id", "isolation.level", "fetch.max.bytes", "max.partition.fetch.bytes",
    "fetch.max.wait.ms", "request.timeout.ms", "check.crcs", "client.rack",
)  # fmt: skip
KAFKA_WRITE: Final = (
    "bootstrap.servers", "client.id", "acks", "batch.size", "compression.type", "delivery.timeout.ms",
    "enable.idempotence",
)  # fmt: skip
