"""The table of readers: everything that reads bytes which another process, another machine or a crash may have made."""

from tests.fuzz.reader import Reader
from tests.fuzz.readers import (
    certificates,
    columns,
    decisions,
    disk,
    envelopes,
    groups,
    large_answers,
    logins,
    memberships,
    metadata,
    records,
    texts,
    tokens,
    transactions,
    typed,
    wire,
    znodes,
)

READERS: dict[str, Reader] = {
    reader.name: reader
    for module in (
        wire,
        envelopes,
        large_answers,
        records,
        columns,
        typed,
        disk,
        texts,
        tokens,
        logins,
        certificates,
        metadata,
        groups,
        decisions,
        memberships,
        transactions,
        znodes,
    )
    for reader in module.READERS
}
