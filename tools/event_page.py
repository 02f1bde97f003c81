"""Makes docs/events.md from the list of events that a broker's log names."""

import sys
from pathlib import Path

from holdfast.controller.decision_lines import NAMED, PER_SECOND
from holdfast.model.log_events import LogEvent

PAGE = Path(__file__).parent.parent / "docs/events.md"

HEAD = f"""# The log of a broker, and its events

Made from `src/holdfast/model/log_events.py` by `make docs`; do not edit. A test fails when it is old.

## Where it is, and what a line looks like

A broker of `holdfast up` writes to `DIR/broker-N.log`; `holdfast broker` to standard error, or to `log.file`. A file
that is larger than `log.file.max.bytes` is renamed to `FILE.1`, and `log.file.backups` of those are kept; logrotate
with `copytruncate` works as well. `log.format` is `text` or `json` ([configuration](configuration.md)):

```text
[2026-11-25T20:48:27.250Z] INFO [broker-1] topic t is deleted (event=topic.deleted topic=t topic_id=... partitions=6)
{{"ts": "2026-11-25T20:48:27.250Z", "level": "INFO", "broker": 1, "event": "topic.deleted", "fields": {{"topic": "t",
 "topic_id": "...", "partitions": 6}}, "message": "topic t is deleted", "logger": "holdfast.broker.controller_loop"}}
```

(The second one is one line.) Times are UTC. Every object has the same keys, and `trace` where there is one; `event` is
null in a line that tells no event. What Python itself writes to standard error is text in either format.

The environment variable `HOLDFAST_LOG_LEVEL` says from which level on lines are written: `DEBUG`, `INFO` (if it is not
set), `WARNING`, `ERROR` or `CRITICAL`. Another value is refused. Events of every day are `INFO`, so `WARNING` hides
most of them.

Nobody waits for the file: lines go through a queue to a thread of their own. On a disk that hangs or is full lines are
lost; a line says how many, as soon as one can be written.

## Who says what, and how much

Decisions are in the log of the broker that is the controller, once they are durable; what happens to a directory is in
the log of the broker that has it. To read all of a cluster, read all logs, ordered by `ts`.

Many things of one kind do not make many lines. When a broker dies that leads thousands of partitions, `broker.fenced`
has the counts, {NAMED} partitions are named for each broker and event, and one more line of that event has the number
of the rest in `partitions` (`topics`, `resources`) in place of a name. More than {PER_SECOND} named lines in a second
are counted likewise.

## Every event
"""


def page() -> str:
    """The whole page."""
    lines = [HEAD, "| event | what has happened | fields | what to do |", "|---|---|---|---|"]
    for event in LogEvent:
        kind = event.value
        fields = ", ".join(f"`{name}`" for name in kind.fields)
        lines.append(f"| `{kind.name}` | {kind.says} | {fields} | {kind.then} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """See the module's docstring."""
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
