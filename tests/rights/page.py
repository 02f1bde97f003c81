"""docs/authorization.md: what each API asks for, and what came of asking it with every right and without.

The first table is security/operations.py's. The second one is what live brokers answered, so the page is written by the
test that asks them; the rows of a page are read back here to see that the rest of it is as it should be.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from holdfast.protocol.apis import INTERNAL, SPOKEN, ApiKey
from holdfast.protocol.error_codes import code_of
from holdfast.security.operations import MISSING, RIGHTS, Asked

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "authorization.md"
GOLDEN: Final = ROOT / "tests" / "golden" / "rights" / "4.3.0.json"
Row: TypeAlias = tuple[str, ...]
"""The sample, its rights, and what came of each kind of case."""
_HEAD: Final = (
    "| request | rights | none of them | each but one | exactly these | a DENY of each beside them | super user |"
)
_ASKED: Final = {Asked.NOBODY: "nobody", Asked.BEFORE: "for all of the request", Asked.BY_NAME: "for each name"}

_INTRODUCTION: Final = """\
# Who may do what

With `authorizer.class.name` a broker asks for a right before it does what a client wants: access control lists say
who has which ([configuration](configuration.md), `holdfast acls`). Without it everybody may do everything. The order
in which lists decide is Kafka's: a super user may everything; else an entry that denies wins over all that allow;
else an entry must allow.

* *What one may not describe cannot be told from what does not exist.* A topic that is named has
  TOPIC_AUTHORIZATION_FAILED without id and flags, whether there is one or not; lists leave it out and say nothing.
* *A request that a broker sends on to the controller* travels in an Envelope with the client's principal and address.
  The controller judges that one, by the row of the request inside. Brokers themselves have to be super users
  (`super.users`): until they are told of the lists nobody else may anything, and they are told by a broker.
* *What brokers say to each other* needs ClusterAction, and is taken on their own listener alone. On another one the
  connection is closed, whoever asks.
* `__admin_client`, the client id of Kafka's tools, lets nobody write internal topics where rights are asked for,
  unless it comes with ClusterAction (KIP-1246).

This page is written by a test that asks brokers; how it is done is in [decision 58](decisions/0058-rights.md).

## What each API asks for

An error code in the table below is that of the right that is missing: {codes}.

| API | right | asked | note |
|---|---|---|---|
"""
_WALKED: Final = """
## What came of it

Each request was asked by a login that has no right, by one that lacks one of those that it needs, by one that has
exactly these, by one that is denied one of them beside that, and by a super user: of one broker by SASL_PLAINTEXT,
with metadata in shared directories and on ZooKeeper. Numbers are the error codes in the answer, 0 is none; "told of"
means that the answer has what the right is about. Other codes than those above are of requests that were allowed and
had nothing to do. Without a login every connection is closed at its first request. Image, logs, offsets and groups
were the same before and after all that was refused.

"""
_DIFFERENCES: Final = """
## Differences from Apache Kafka 4.3.0

The same script asked Apache Kafka 4.3.0 the same. Rows of APIs that Kafka has, and has not answered like this:

"""


def static(rows: Sequence[Row], kafkas: Sequence[Row]) -> str:
    """The page with these rows, ours and those of Kafka."""
    codes = ", ".join(f"{''.join(w.capitalize() for w in k.name.split('_'))} {code_of(e)}" for k, e in MISSING.items())
    return "".join(
        [
            _INTRODUCTION.replace("{codes}", codes),
            *_apis(),
            _WALKED,
            *_table(rows),
            _DIFFERENCES,
            *(f"* {line}\n" for line in differences(rows, kafkas) or ["none"]),
        ]
    )


def _apis() -> Iterator[str]:
    for key in sorted(SPOKEN.keys() | INTERNAL.keys()):
        row = RIGHTS[ApiKey(key).name]
        name = "".join(word.capitalize() for word in key.name.split("_"))
        yield f"| {name} ({int(key)}) | {', '.join(map(str, row.rights)) or '-'} | {_ASKED[row.asked]} | {row.note} |\n"


def _table(rows: Iterable[Row]) -> Iterator[str]:
    yield _HEAD + "\n" + "|---" * 7 + "|\n"
    for row in rows:
        yield f"| {' | '.join(row)} |\n"


def rows_of(page: str) -> list[Row]:
    """Those that came of asking."""
    lines = page.partition(_HEAD)[2].splitlines()[2:]
    found = []
    for line in lines:
        if not line.startswith("| "):
            break
        found.append(tuple(line[2:-2].split(" | ")))
    return found


def differences(rows: Sequence[Row], kafkas: Sequence[Row]) -> list[str]:
    """Where both have a row and it is not the same."""
    theirs = {row[0]: row for row in kafkas}
    return [
        f"{row[0]}: {'; '.join(row[2:])}. Kafka: {'; '.join(theirs[row[0]][2:])}."
        for row in rows
        if row[0] in theirs and theirs[row[0]] != row
    ]


def recorded() -> list[Row]:
    """What Apache Kafka 4.3.0 answered."""
    return [tuple(row) for row in json.loads(GOLDEN.read_text())]


def record(rows: Sequence[Row]) -> None:
    """As ``recorded`` reads it."""
    GOLDEN.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
