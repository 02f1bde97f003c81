"""Acts on topics: make, delete, elect leaders; and on configurations of topics and brokers."""

from holdfast.client.admin import AdminClient
from holdfast.client.configs import AlterConfigOp, ConfigTarget, KeyChange, alter_config, describe_config
from holdfast.client.elections import elect_leaders
from holdfast.client.views import NewTopic
from holdfast.console.acts import ActField, ActPlan, ActRefused, Form, command, needed, number, said
from holdfast.console.rows import bytes_by_topic
from holdfast.console.snapshot import Snapshot, topics_of_groups
from holdfast.console.words import bytes_words, count_words
from holdfast.model.types import TopicPartition, named


class CreateTopic:
    """A new topic."""

    name, title, verb = "create-topic", "Make a topic", "Make it"
    ours = False

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def fields(self, snapshot: Snapshot, form: Form) -> list[ActField]:
        default = "Empty: the brokers' default."
        return [
            ActField(name="topic", label="Name", value=form.get("topic", "")),
            ActField(
                name="partitions", label="Partitions", kind="number", value=form.get("partitions", ""), hint=default
            ),
            ActField(
                name="replicas", label="Replicas of each", kind="number", value=form.get("replicas", ""), hint=default
            ),
            ActField(
                name="configs",
                label="Configuration",
                kind="area",
                value=form.get("configs", ""),
                hint="KEY=VALUE, one a line.",
            ),
        ]

    def _asked(self, form: Form) -> NewTopic:
        configs = {}
        for line in filter(None, map(str.strip, form.get("configs", "").splitlines())):
            key, equals, value = line.partition("=")
            if not equals or not key.strip():
                raise ActRefused(f"configuration {line!r}: expected KEY=VALUE, like retention.ms=86400000")
            configs[key.strip()] = value.strip()

        def count(name: str, what: str) -> int | None:
            return number(form, name, what, low=1) if form.get(name, "").strip() else None

        return NewTopic(
            name=needed(form, "topic", "name"),
            partitions=count("partitions", "partitions"),
            replication_factor=count("replicas", "replicas"),
            configs=configs or None,
        )

    async def plan(self, client: AdminClient, snapshot: Snapshot, form: Form) -> ActPlan:
        topic = self._asked(form)
        error = (await client.create_topics([topic], validate_only=True)).get(topic.name)
        partitions = "the brokers' default of" if topic.partitions is None else count_words(topic.partitions)
        replicas = (
            "the brokers' default of" if topic.replication_factor is None else count_words(topic.replication_factor)
        )
        words = ["topics", "create"]
        if topic.partitions is not None:
            words += ["--partitions", str(topic.partitions)]
        if topic.replication_factor is not None:
            words += ["--replication-factor", str(topic.replication_factor)]
        for key, value in (topic.configs or {}).items():
            words += ["--config", f"{key}={value}"]
        return ActPlan(
            lines=(f"a topic {topic.name} with {partitions} partitions and {replicas} replicas of each",),
            refused=None if error is None else said(error),
            commands=(command(self._bootstrap, *words, names=[topic.name]),),
        )

    async def do(self, client: AdminClient, snapshot: Snapshot, form: Form) -> list[str]:
        topic = self._asked(form)
        await client.create_topic(topic)
        return [f"topic {topic.name} is made"]


def topic_field(snapshot: Snapshot, form: Form) -> ActField:
    """By its name, typed: a list of 9,000 helps nobody."""
    return ActField(name="topic", label="Topic", value=form.get("topic", ""))


def known_topic(snapshot: Snapshot, form: Form) -> str:
    """ActRefused for one that the cluster has not."""
    name = needed(form, "topic", "topic")
    if name not in snapshot.view.topics:
        raise ActRefused(f"topic {name!r} does not exist")
    return name


class DeleteTopic:
    """A topic with all its records."""

    name, title, verb = "delete-topic", "Delete a topic", "Delete it"
    ours = False

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def fields(self, snapshot: Snapshot, form: Form) -> list[ActField]:
        return [topic_field(snapshot, form)]

    async def plan(self, client: AdminClient, snapshot: Snapshot, form: Form) -> ActPlan:
        name = known_topic(snapshot, form)
        topic = snapshot.view.topics[name]
        size = bytes_by_topic(snapshot).get(name)
        records = sum(end for tp, end in snapshot.ends.items() if tp.topic == name)
        groups = topics_of_groups(snapshot).get(name, [])
        warnings = [] if not groups else [f"{len(groups)} groups have offsets in it: {', '.join(groups[:5])}"]
        if topic.internal:
            warnings.append("it is an internal topic of the cluster")
        return ActPlan(
            lines=(
                f"{name} is deleted: {len(topic.partitions)} partitions, {bytes_words(size)} with all replicas",
                f"its logs end at {count_words(records)} records in all",
                "nothing brings them back",
            ),
            warnings=tuple(warnings),
            confirm=name,
            commands=(command(self._bootstrap, "topics", "delete", names=[name]),),
        )

    async def do(self, client: AdminClient, snapshot: Snapshot, form: Form) -> list[str]:
        name = needed(form, "topic", "topic")
        error = (await client.delete_topics([name])).get(name)
        if error is not None:
            raise error
        return [f"topic {name} is deleted"]


class ElectByHand:
    """Leaders by hand: the first replica again, or one that may lack records."""

    name, title, verb = "elect", "Elect leaders", "Elect"
    ours = False

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def fields(self, snapshot: Snapshot, form: Form) -> list[ActField]:
        kinds = (
            ("preferred", "preferred: the first replica leads again, if it is in sync"),
            ("unclean", "unclean: partitions without a leader get one, and may lose records"),
        )
        return [
            ActField(name="kind", label="Election", kind="choice", choices=kinds, value=form.get("kind", "")),
            topic_field(snapshot, form),
            ActField(
                name="partition",
                label="Partition",
                kind="number",
                value=form.get("partition", ""),
                hint="Empty: all of it.",
            ),
        ]

    def _asked(self, snapshot: Snapshot, form: Form) -> tuple[bool, str, list[TopicPartition]]:
        """Whether it is unclean, the topic, and the partitions in which there is something to elect."""
        unclean, name = form.get("kind") == "unclean", known_topic(snapshot, form)
        only = number(form, "partition", "partition") if form.get("partition", "").strip() else None
        found = [
            TopicPartition(name, p.partition)
            for p in snapshot.view.topics[name].partitions
            if only in (None, p.partition)
            and (
                p.leader is None
                if unclean
                else p.leader is not None and p.replicas and p.leader != p.replicas[0] and p.replicas[0] in p.isr
            )
        ]
        return unclean, name, found

    async def plan(self, client: AdminClient, snapshot: Snapshot, form: Form) -> ActPlan:
        unclean, name, wanted = self._asked(snapshot, form)
        words = ["elect", "--topic", name]
        if form.get("partition", "").strip():
            words += ["--partition", form["partition"].strip()]
        lines, warnings = [f"{named(wanted)}: the first replica leads again"], []
        if unclean:
            lines = [f"{named(wanted)}: one of the replicas that are alive leads"]
            warnings = ["records that only the others have are lost for good"]
        return ActPlan(
            lines=tuple(lines if wanted else ()),
            warnings=tuple(warnings),
            confirm=name if unclean else None,
            refused=None if wanted else f"{name} has no partition in which that would elect anybody",
            commands=(command(self._bootstrap, *words, names=["unclean" if unclean else "preferred"]),),
        )

    async def do(self, client: AdminClient, snapshot: Snapshot, form: Form) -> list[str]:
        unclean, _, wanted = self._asked(snapshot, form)
        outcomes = await elect_leaders(client, wanted, unclean=unclean)
        return [f"{tp}: {'elected' if error is None else said(error)}" for tp, error in sorted(outcomes.items())]


class ChangeConfig:
    """One key of a topic, a broker, or all brokers."""

    name, title, verb = "config", "Change a configuration", "Change it"
    ours = False

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def fields(self, snapshot: Snapshot, form: Form) -> list[ActField]:
        kinds = (("topic", "a topic"), ("broker", "one broker"), ("default", "all brokers, by default"))
        ways = (("set", "set"), ("unset", "take the setting away"))
        return [
            ActField(name="kind", label="Of", kind="choice", choices=kinds, value=form.get("kind", "")),
            ActField(name="of", label="Topic or broker", value=form.get("of", ""), hint="Empty for all brokers."),
            ActField(name="key", label="Key", value=form.get("key", "")),
            ActField(name="way", label="Do", kind="choice", choices=ways, value=form.get("way", "")),
            ActField(name="value", label="Value", value=form.get("value", "")),
        ]

    def _asked(self, snapshot: Snapshot, form: Form) -> tuple[ConfigTarget, KeyChange]:
        kind = form.get("kind", "")
        if kind not in ("topic", "broker", "default"):
            raise ActRefused(f"of {kind!r}: expected topic, broker or default")
        if kind == "topic":
            target = ConfigTarget(topic=needed(form, "of", "topic"))
        else:
            target = ConfigTarget(broker=number(form, "of", "broker") if kind == "broker" else None)
        key = needed(form, "key", "key")
        if form.get("way") == "unset":
            return target, KeyChange(key=key, operation=AlterConfigOp.DELETE)
        return target, KeyChange(key=key, operation=AlterConfigOp.SET, value=form.get("value", "").strip())

    async def plan(self, client: AdminClient, snapshot: Snapshot, form: Form) -> ActPlan:
        target, change = self._asked(snapshot, form)
        now = next((v for v in await describe_config(client, target) if v.name == change.key), None)
        await alter_config(client, target, [change], validate_only=True)
        is_so = "not set" if now is None else f"{'hidden' if now.sensitive else now.value} ({now.source})"
        after = "what is beneath counts again" if change.value is None else f"then {change.value}"
        words = ["configs", "unset" if change.value is None else "set"]
        if target.topic is not None:
            words += ["--topic", target.topic]
        else:
            words += ["--broker-default"] if target.broker is None else ["--broker", str(target.broker)]
        argument = change.key if change.value is None else f"{change.key}={change.value}"
        return ActPlan(
            lines=(f"{target}: {change.key} is {is_so}, {after}",),
            commands=(command(self._bootstrap, *words, names=[argument]),),
        )

    async def do(self, client: AdminClient, snapshot: Snapshot, form: Form) -> list[str]:
        target, change = self._asked(snapshot, form)
        await alter_config(client, target, [change])
        return [f"{target}: {change.key} is {'not set' if change.value is None else change.value}"]
