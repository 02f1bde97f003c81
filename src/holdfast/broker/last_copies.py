"""Replicas that nobody else has all of: what may be taken away from the cluster by force only.

Owns that one question, asked before a log directory is taken offline or removed by hand; whoever asks the broker, with
our command or without, is refused alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.model.errors import InvalidRequestError
from holdfast.model.types import BrokerId, TopicPartition, named

if TYPE_CHECKING:
    from holdfast.broker.metadata_cache import MetadataCache


def last_copies(metadata: MetadataCache, me: BrokerId, held: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Those of which no other broker is in the ISR. What is deleted, or to be on others by now, is none."""
    found = []
    for tp in sorted(set(held)):
        info = metadata.partition(tp)
        if info is not None and me in info.replicas and not set(info.isr) - {me}:
            found.append(tp)
    return found


def refuse_last_copies(
    metadata: MetadataCache, me: BrokerId, path: str, held: Iterable[TopicPartition], then: str
) -> None:
    """InvalidRequestError when the directory ``path`` has the last copy of something. ``then``: what becomes of it."""
    last = last_copies(metadata, me, held)
    if last:
        raise InvalidRequestError(f"{path} on broker {me} has the last copy of {named(last)}: {then}; --force does it")
