"""docs/configuration.md, made from the table of keys: ``python -m holdfast.model.config_docs > docs/configuration.md``.

Owns the layout only. A test compares the file with what this makes.
"""

from collections.abc import Iterable

from holdfast.model.config_keys import KEYS, ConfigKey
from holdfast.model.config_topic_keys import TOPIC_KEYS

_INTRO = """\
# Configuration

Made from `src/holdfast/model/config_keys.py` by `python -m holdfast.model.config_docs`; do not edit.

A broker reads a properties file with Kafka's keys. Names, types, defaults and ranges are those of Apache Kafka
4.3 (3.9 where 4.3 dropped the key); *ours* marks a key that Kafka does not have. A key that is not listed is not
supported: it is kept, told in the log at start, and changes nothing.
"""


def configuration_markdown() -> str:
    """The whole page."""
    topic = [
        (item.key, ", ".join(f"`{name}`" for name, _ in item.synonyms))
        for item in sorted(TOPIC_KEYS.values(), key=lambda item: item.key.name)
    ]
    broker = [(key, key.update.value) for key in sorted(KEYS.values(), key=lambda key: key.name)]
    return (
        _INTRO
        + "\n## Broker\n\n"
        + _table("update", broker)
        + "\n## Topic\n\nGiven when a topic is created or altered; the default comes from the broker's keys.\n\n"
        + _table("default from", topic)
    )


def _table(last: str, rows: Iterable[tuple[ConfigKey, str]]) -> str:
    lines = [f"| key | type | default | allowed | {last} | meaning |", "|---|---|---|---|---|---|"]
    for key, extra in rows:
        default = "" if key.default is None else f"`{key.default}`" if key.default else "empty"
        name = f"`{key.name}`" + (" (ours)" if key.ours else "")
        lines.append(f"| {name} | {key.type.value} | {default} | {key.range} | {extra} | {key.doc} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(configuration_markdown(), end="")
