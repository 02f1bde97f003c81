"""``python -m tests.chaos.judge DIR [PARTITION OFFSET]``: look again at what a run left.

Judges the ledger of DIR once more against the logs of its cluster, whether the replicas are equal, and, where the run
had ZooKeeper servers, who their logs say was the controller; or, with a partition and an offset, prints every event
within three offsets of it, with the wall clock of the brokers' logs.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.chaos import replicas
from tests.chaos.ensemble import judged
from tests.chaos.recorder import EVENT, place_name, replay
from tests.checks.ledger import unpack

BROKERS = (1, 2, 3)
NEAR = 3
WORDS = {
    "A": "producer {who} was told {offset}",
    "R": "reader {who} got {offset}: record {record}",
    "G": "reader {who} got {offset} for the group: record {record}",
    "P": "reader {who} goes to {offset}",
    "E": "the end was {offset}, asked for {took:.3f} s before",
}


def main() -> int:
    """See the module's docstring. Exit code 1 if something is wrong, as that of the run."""
    directory = Path(sys.argv[1])
    if len(sys.argv) == 4:
        print("\n".join(near(directory, sys.argv[2], int(sys.argv[3]))))
        return 0
    wrong: list[str] = []
    places = [(topic, partition) for topic, partition in json.loads((directory / "partitions.json").read_text())]
    logs = {
        place_name(place): replicas.records_of(replicas.log_bytes(directory / "cluster", 1, place), place, wrong)
        for place in places
    }
    wrong += replicas.unequal(directory / "cluster", BROKERS, places)
    servers = sorted(directory.glob("zookeeper-*"))
    said = judged(servers, lambda kind, text: wrong.append(f"{kind}: {text}")) if servers else "no ZooKeeper server"
    verdict = replay(directory).verdict(logs, more=wrong)
    print(verdict.totals)
    print(said)
    for violation in verdict.violations:
        print(f"{violation.kind}: {violation.text}")
    return 1 if verdict.violations else 0


def near(directory: Path, partition: str, offset: int) -> Iterator[str]:
    """A line for each event about offsets near this one, in the order in which they happened."""
    names = [place_name((topic, number)) for topic, number in json.loads((directory / "partitions.json").read_text())]
    wanted = names.index(partition)
    data = (directory / "ledger.bin").read_bytes()
    events = list(EVENT.iter_unpack(data[: len(data) // EVENT.size * EVENT.size]))
    # The last event was written when the file was last changed, or a moment before: near enough to find a log line.
    zero_s = (directory / "ledger.bin").stat().st_mtime - events[-1][7] / 1e9
    for what, who, number, _, at, record, began, now in events:
        word = WORDS.get(what.decode())
        if number == wanted and word is not None and abs(at - offset) <= NEAR:
            moment = datetime.datetime.fromtimestamp(zero_s + now / 1e9).strftime("%H:%M:%S.%f")[:-3]
            name = "{}.{}".format(*unpack(record)) if record >= 0 else "of nobody"
            yield f"{moment} " + word.format(who=who, offset=at, record=name, took=(now - began) / 1e9)


if __name__ == "__main__":
    sys.exit(main())
