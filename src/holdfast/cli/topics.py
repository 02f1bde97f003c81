"""``holdfast topics``: what kafka-topics.sh does, with its lines.

With --kafka-errors, errors go to standard output with the tool's prefix, and to standard error with their class.
"""

import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence

import click

from holdfast.cli.completing import complete_topics
from holdfast.cli.connecting import UsageError, bootstrap_option, confirmed, with_cluster
from holdfast.cli.documents import described_topics_document, topics_document
from holdfast.cli.failing import FAILED, Failed, Misused, asked, failing, reason_of
from holdfast.cli.kafka_errors import Declined, KafkaErrorsGroup, in_kafkas_words
from holdfast.cli.kafka_words import PACKAGE, qualified, said
from holdfast.cli.topic_lines import Filter, base64_id, describe_lines
from holdfast.cli.topic_offsets import offsets, trim
from holdfast.client.admin import AdminClient
from holdfast.client.views import NewTopic, TopicView
from holdfast.model.errors import (
    HoldfastError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from holdfast.model.types import BrokerId

MAX_REPLICATION_FACTOR = 32767
MAX_PARTITIONS = 2**31 - 1


class CommandError(Declined):
    """Declined before a broker was asked; ``kind`` is the class that Kafka's tool would name."""

    def __init__(
        self, message: str, kafkas: str | None = None, kind: str = "java.lang.IllegalArgumentException"
    ) -> None:
        super().__init__(message, kafkas)
        self.kind = kind

    def tell_in_kafkas_words(self) -> None:
        """On both streams."""
        tell(self.kafkas, f"{self.kind}: {self.kafkas}")


class TopicOptionError(CommandError, Misused):
    """The same, for what cannot be meant."""


@click.group(cls=KafkaErrorsGroup)
def topics() -> None:
    """Create, list, describe, alter, delete topics; show offsets, trim."""


topics.add_command(offsets)
topics.add_command(trim)


def missing_topic(ctx: click.Context | None = None) -> UsageError:
    kafkas = 'Missing required argument "[topic]"'
    return UsageError(kafkas if in_kafkas_words() else "expected the NAME of a topic", ctx)


def topic_option(required: bool, help_text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """``--topic NAME`` or just NAME."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def check(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
            name = ctx.params.pop("name", None)
            if value is not None and name is not None:
                raise UsageError(f"--topic {value} and {name}: expected one of them", ctx)
            value = value or name
            if required and value is None:
                raise missing_topic(ctx)
            return value

        command = click.option("--topic", "topic", callback=check, shell_complete=complete_topics, help=help_text)(
            command
        )
        return click.argument("name", required=False, expose_value=True, is_eager=True, shell_complete=complete_topics)(
            command
        )

    return decorate


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document.")


@topics.command()
@bootstrap_option
@topic_option(True, "Name of the new topic.")
@click.option("--partitions", type=int, help="Number of partitions; the brokers' default without it.")
@click.option("--replication-factor", type=int, help="Replicas of each; the brokers' default without it.")
@click.option("--replica-assignment", help="Brokers of each partition: 1:2,2:3 is two partitions.")
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE", help="A setting; repeatable.")
@click.option("--if-not-exists", is_flag=True, help="An existing topic is no error.")
def create(
    bootstrap: str,
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    name: str | None = None,
) -> None:
    """Create a topic.

    Which keys --config takes, and what they have without it, is in docs/configuration.md; `holdfast configs describe
    --topic NAME --all` shows those of a topic.
    """
    check_counts(partitions, replication_factor)
    if replica_assignment is not None and (partitions is not None or replication_factor is not None):
        raise UsageError(
            "--replica-assignment says how many partitions and replicas there are: expected it without"
            " --partitions and --replication-factor"
        )
    new = NewTopic(
        name=topic,
        partitions=partitions,
        replication_factor=replication_factor,
        assignments=None if replica_assignment is None else parse_assignment(replica_assignment),
        configs=parse_configs(configs),
    )

    async def work(client: AdminClient) -> None:
        if "." in topic or "_" in topic:
            click.echo(
                "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could"
                " collide. To avoid issues it is best to use either, but not both."
            )
        try:
            await client.create_topic(new)
        except TopicAlreadyExistsError:
            if if_not_exists:
                return
            raise
        click.echo(f"Created topic {topic}.")

    run(bootstrap, work)


def check_counts(partitions: int | None, replication_factor: int | None) -> None:
    """TopicOptionError for numbers that nothing can have."""
    if partitions is not None and not 0 < partitions <= MAX_PARTITIONS:
        kafkas = "The partitions must be greater than 0" if partitions < 1 else None
        raise TopicOptionError(f"--partitions {partitions}: expected 1 to {MAX_PARTITIONS}", kafkas)
    if replication_factor is not None and not 0 < replication_factor <= MAX_REPLICATION_FACTOR:
        raise TopicOptionError(
            f"--replication-factor {replication_factor}: expected 1 to {MAX_REPLICATION_FACTOR}",
            f"The replication factor must be between 1 and {MAX_REPLICATION_FACTOR} inclusive",
        )


@topics.command(name="list")
@bootstrap_option
@topic_option(False, "Only topics whose names match this expression.")
@click.option("--exclude-internal", is_flag=True, help="Without topics like __consumer_offsets.")
@json_option
def list_topics(
    bootstrap: str, topic: str | None, exclude_internal: bool, as_json: bool, name: str | None = None
) -> None:
    """List topics, one a line."""

    async def work(client: AdminClient) -> None:
        view = await client.metadata()
        found = matching(view.topics.values(), topic, exclude_internal)
        for line in [topics_document(found)] if as_json else [each.name for each in found]:
            click.echo(line)

    run(bootstrap, work, plainly=as_json)


@topics.command()
@bootstrap_option
@topic_option(False, "Only topics whose names match this expression.")
@click.option("--topic-id", metavar="ID", help="Only the topic with this id, in place of a name.")
@click.option("--exclude-internal", is_flag=True, help="Without topics like __consumer_offsets.")
@click.option("--if-exists", is_flag=True, help="A missing topic is no error.")
@click.option("--under-replicated-partitions", "under_replicated", is_flag=True, help="ISR is not complete.")
@click.option("--unavailable-partitions", "unavailable", is_flag=True, help="There is no live leader.")
@click.option("--under-min-isr-partitions", "under_min_isr", is_flag=True, help="ISR below the minimum.")
@click.option("--at-min-isr-partitions", "at_min_isr", is_flag=True, help="ISR exactly at the minimum.")
@click.option("--topics-with-overrides", "with_overrides", is_flag=True, help="Topics with settings of their own.")
@json_option
def describe(
    bootstrap: str,
    topic: str | None,
    topic_id: str | None,
    exclude_internal: bool,
    if_exists: bool,
    under_replicated: bool,
    unavailable: bool,
    under_min_isr: bool,
    at_min_isr: bool,
    with_overrides: bool,
    as_json: bool,
    name: str | None = None,
) -> None:
    """Describe topics and their partitions: leader, replicas, in-sync and offline ones."""
    if topic is not None and topic_id is not None:
        raise UsageError(f"--topic-id {topic_id} and {topic}: expected one of them")
    chosen = Filter(
        under_replicated=under_replicated,
        unavailable=unavailable,
        under_min_isr=under_min_isr,
        at_min_isr=at_min_isr,
        with_overrides=with_overrides,
    )

    async def work(client: AdminClient) -> None:
        view = await client.metadata()
        found = matching(view.topics.values(), topic, exclude_internal)
        require_found(found, topic, if_exists)
        if topic_id is not None:
            found = with_id(found, topic_id, if_exists)
        configs = await client.describe_topic_configs([t.name for t in found]) if found else {}
        if as_json:
            click.echo(described_topics_document(found, configs, view.brokers, chosen))
            return
        for line in describe_lines(found, configs, view.brokers, chosen):
            click.echo(line)

    run(bootstrap, work, plainly=as_json)


def chosen_option(command: Callable[..., None]) -> Callable[..., None]:
    """NAME..., or ``--regex`` NAME..., or ``--topic`` EXPRESSION: which topics a change is for."""
    command = click.option("--yes", "-y", is_flag=True, help="Do not ask when it is more than one topic.")(command)
    command = click.option("--regex", "-r", is_flag=True, help="Each NAME is a regular expression.")(command)
    command = click.option(
        "--topic",
        "pattern",
        metavar="EXPRESSION",
        shell_complete=complete_topics,
        help="A regular expression, as Kafka's tool.",
    )(command)
    command = click.option("--if-exists", is_flag=True, help="A missing topic is no error.")(command)
    return click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_topics)(command)


def check_chosen(names: Sequence[str], pattern: str | None) -> None:
    """UsageError where it does not say which topics."""
    if pattern is not None and names:
        raise UsageError(f"--topic {pattern} and {names[0]}: expected names, or --topic")
    if pattern is None and not names:
        raise missing_topic()


async def chosen(
    client: AdminClient, names: Sequence[str], pattern: str | None, *, regex: bool, if_exists: bool
) -> list[TopicView]:
    """The topics of ``chosen_option``, in order of name. CommandError for one that is not there."""
    there = (await client.metadata()).topics
    found: dict[str, TopicView] = {}
    for wanted in (pattern,) if pattern is not None else names:
        if regex or pattern is not None:
            ones = matching(there.values(), wanted, False)
        else:
            ones = [there[wanted]] if wanted in there else []
        require_found(ones, wanted, if_exists)
        found |= {t.name: t for t in ones}
    return sorted(found.values(), key=lambda t: t.name)


@topics.command()
@bootstrap_option
@chosen_option
@click.option("--partitions", type=int, required=True, help="New number of partitions.")
@click.option(
    "--replica-assignment",
    help="Brokers of every partition, as of create; those of partitions that are there are passed over.",
)
def alter(
    bootstrap: str,
    names: tuple[str, ...],
    pattern: str | None,
    regex: bool,
    yes: bool,
    if_exists: bool,
    partitions: int,
    replica_assignment: str | None,
) -> None:
    """Add partitions to the topics NAME."""
    check_chosen(names, pattern)

    if partitions > MAX_PARTITIONS or not (partitions > 0 or in_kafkas_words()):  # there brokers refuse it
        raise TopicOptionError(f"--partitions {partitions}: expected 1 to {MAX_PARTITIONS}")
    assignment = None if replica_assignment is None else parse_assignment(replica_assignment)
    if assignment is not None and len(assignment) != partitions:
        raise TopicOptionError(
            f"--replica-assignment {replica_assignment} has {len(assignment)} partitions: expected {partitions}, those"
            " that are there included, as --partitions says"
        )

    async def work(client: AdminClient) -> None:
        found = await chosen(client, names, pattern, regex=regex, if_exists=if_exists)
        if len(found) > 1:
            confirmed(f"give {partitions} partitions to {len(found)} topics:", [t.name for t in found], yes=yes)
        for one in found:
            there = len(one.partitions)
            placed = None if assignment is None else [assignment[at] for at in range(there, partitions)]
            await client.create_partitions(one.name, partitions, placed)
            click.echo(f"Topic {one.name} has {partitions} partitions.")

    run(bootstrap, work)


@topics.command()
@bootstrap_option
@chosen_option
def delete(
    bootstrap: str, names: tuple[str, ...], pattern: str | None, regex: bool, yes: bool, if_exists: bool
) -> None:
    """Delete the topics NAME with all their records."""
    check_chosen(names, pattern)

    async def work(client: AdminClient) -> None:
        found = await chosen(client, names, pattern, regex=regex, if_exists=if_exists)
        if len(found) > 1:
            confirmed(f"delete {len(found)} topics with all their records:", [t.name for t in found], yes=yes)
        outcomes = await client.delete_topics([t.name for t in found]) if found else {}
        for name, error in outcomes.items():
            if error is None:
                click.echo(f"Deleted topic {name}.")
        failed = {
            name: error
            for name, error in outcomes.items()
            if error is not None and not (if_exists and isinstance(error, UnknownTopicOrPartitionError))
        }
        if failed and in_kafkas_words():
            raise next(iter(failed.values()))
        if failed:
            raise Failed(*(f"topic '{name}' was not deleted: {reason_of(error)}" for name, error in failed.items()))

    run(bootstrap, work)


def run(bootstrap: str, work: Callable[[AdminClient], Awaitable[None]], *, plainly: bool = False) -> None:
    """In Kafka's words as kafka-topics.sh prints them, and its exit code; ``plainly``: none on standard output."""
    if not in_kafkas_words():
        asked(bootstrap, work)
        return
    if plainly:
        with failing("topics"):
            with_cluster(bootstrap, work)
        return
    try:
        with_cluster(bootstrap, work)
    except HoldfastError as e:
        tell(said(e), qualified(e, said(e)))
        sys.exit(FAILED)


def tell(message: str, detail: str) -> None:
    """An error, as kafka-topics.sh does."""
    click.echo(f"Error while executing topic command : {message}")
    click.echo(f"ERROR {detail}", err=True)


def matching(topics: Iterable[TopicView], pattern: str | None, exclude_internal: bool) -> list[TopicView]:
    """Topics whose whole name matches, in order of name; a comma is an "or", as in Kafka's tools."""
    expression = None
    if pattern is not None:
        try:
            expression = re.compile(pattern.replace(",", "|"))
        except re.error as e:
            raise TopicOptionError(f"{pattern!r} is not a regular expression: {e}") from e
    return sorted(
        (
            t
            for t in topics
            if (expression is None or expression.fullmatch(t.name)) and not (exclude_internal and t.internal)
        ),
        key=lambda t: t.name,
    )


def require_found(found: list[TopicView], pattern: str | None, if_exists: bool) -> None:
    if not found and pattern is not None and not if_exists:
        raise CommandError(f"there is no topic '{pattern}'", f"Topic '{pattern}' does not exist as expected")


def with_id(topics: Iterable[TopicView], topic_id: str, if_exists: bool) -> list[TopicView]:
    """The one of this id, in Kafka's form. CommandError."""
    found = [t for t in topics if t.topic_id is not None and base64_id(t.topic_id) == topic_id]
    if not found and not if_exists:
        raise CommandError(f"there is no topic of id '{topic_id}'", f"TopicId '{topic_id}' does not exist as expected")
    return found


def parse_configs(pairs: Iterable[str]) -> dict[str, str]:
    configs = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            kafkas = f"Invalid topic config: {pair!r}, expected KEY=VALUE"
            raise TopicOptionError(
                f"--config {pair!r}: expected KEY=VALUE", kafkas, f"{PACKAGE}.InvalidConfigurationException"
            )
        configs[key.strip()] = value.strip()
    return configs


def parse_assignment(text: str) -> dict[int, tuple[BrokerId, ...]]:
    """``1:2,2:3`` -> {0: (1, 2), 1: (2, 3)}. TopicOptionError."""
    found: dict[int, tuple[BrokerId, ...]] = {}
    for index, part in enumerate(text.split(",")):
        where = f"--replica-assignment {text}: partition {index}"
        try:
            brokers = tuple(int(broker) for broker in part.split(":"))
        except ValueError:
            raise TopicOptionError(f"{where} has {part!r}: expected broker ids like 1:2") from None
        repeated = ",".join(map(str, sorted({b for b in brokers if brokers.count(b) > 1})))
        if repeated:
            raise TopicOptionError(
                f"{where} has broker {repeated} more than once: expected each broker once",
                f"Partition replica lists may not contain duplicate entries: {repeated}",
                "org.apache.kafka.tools.AdminCommandFailedException",
            )
        if found and len(brokers) != len(found[0]):
            raise TopicOptionError(
                f"{where} has {len(brokers)} replicas and partition 0 has {len(found[0])}: expected as many of each",
                f"Partition {index} has different replication factor: [{', '.join(map(str, brokers))}]",
                "org.apache.kafka.tools.AdminOperationException",
            )
        found[index] = brokers
    return found
