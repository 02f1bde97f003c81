"""docs/configuration.md, made from the table of keys: ``python -m holdfast.model.config_docs > docs/configuration.md``.

Owns the layout only. A test compares the file with what this makes.
"""

from collections.abc import Iterable

from holdfast.model.config_key import ConfigKey
from holdfast.model.config_keys import KEYS
from holdfast.model.config_topic_keys import TOPIC_KEYS

_INTRO = """\
# Configuration

Made from `src/holdfast/model/config_keys.py` by `python -m holdfast.model.config_docs`; do not edit.

A broker reads a properties file with Kafka's keys. Names, types, defaults and ranges are those of Apache Kafka
4.3 (3.9 where 4.3 dropped the key); *ours* marks a key that Kafka does not have. A key that is not listed is not
supported and changes nothing: the log of the broker says so at the start, with the nearest key that there is;
`holdfast up --set` refuses it. *Per listener*: a listener may have a value of its own,
`listener.name.NAME.KEY=VALUE`, its name in small letters.
"""


_INERT = """
## Accepted and without effect

Clients and tools that copy a configuration key by key set these; here nothing goes by them, for the reason that is
given. *Only* a default is allowed where another value would ask for what is not there: it is refused. `topic` marks
keys of topics.

"""


def configuration_markdown() -> str:
    """The whole page."""
    topic = [
        (item.key, ", ".join(f"`{name}`" for name, _ in item.synonyms))
        for item in sorted(TOPIC_KEYS.values(), key=lambda item: item.key.name)
        if item.key.inert is None
    ]

    keys = sorted(KEYS.values(), key=lambda key: key.name)
    broker = [(key, key.update.value) for key in keys if key.inert is None]
    inert = [(key, key.update.value) for key in keys if key.inert is not None]
    inert += [(item.key, "topic") for item in TOPIC_KEYS.values() if item.key.inert is not None]
    return (
        _INTRO
        + "\n## Broker\n\n"
        + _table("update", broker)
        + "\n## Topic\n\nGiven when a topic is created or altered; the default comes from the broker's keys.\n\n"
        + _table("default from", topic)
        + _INERT
        + _table("update", sorted(inert, key=lambda row: (row[1] == "topic", row[0].name)))
    )


def _table(last: str, rows: Iterable[tuple[ConfigKey, str]]) -> str:
    lines = [f"| key | type | default | allowed | {last} | meaning |", "|---|---|---|---|---|---|"]
    for key, extra in rows:
        default = "" if key.default is None else f"`{key.default}`" if key.default else "empty"
        name = f"`{key.name}`" + (" (ours)" if key.ours else "") + (" (per listener)" if key.per_listener else "")
        lines.append(f"| {name} | {key.type.value} | {default} | {key.range} | {extra} | {key.doc} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(configuration_markdown(), end="")
