"""Topics that come and go beside the faults, and whether they are where they were left.

A thread works off the schedule with a stock admin client. What it was not told stays unknown: a request without an
answer may have been done or not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.producers import EAGER, QUIET
from tests.chaos.recorder import Recorder
from tests.chaos.schedule import TopicChange

ANSWER_S = 40


class PassingTopics(threading.Thread):
    """``there`` says of each name whether it exists; None when nobody knows."""

    def __init__(self, recorder: Recorder, changes: Sequence[TopicChange], *, settings: Mapping[str, Any]) -> None:
        super().__init__(name="topics", daemon=True)
        self.there: dict[str, bool | None] = {}
        self.done = 0
        self._recorder, self._changes = recorder, changes
        self._settings = {**QUIET, **EAGER, "socket.timeout.ms": 30_000, **settings}
        self._over = threading.Event()

    def stop(self) -> None:
        self._over.set()

    def run(self) -> None:
        admin = AdminClient(self._settings)
        began = time.monotonic()
        for change in self._changes:
            if self._over.wait(max(0.0, began + change.at_s - time.monotonic())):
                return
            self._do(admin, change)
            admin.poll(0)  # what the client tells of connections, which would pile up

    def _do(self, admin: AdminClient, change: TopicChange) -> None:
        limits = {"request_timeout": 30, "operation_timeout": 30}
        if change.partitions is None:
            futures = admin.delete_topics([change.name], **limits)
            wanted, same = False, KafkaError.UNKNOWN_TOPIC_OR_PART
        else:
            futures = admin.create_topics([NewTopic(change.name, change.partitions, 3)], **limits)
            wanted, same = True, KafkaError.TOPIC_ALREADY_EXISTS
        before = self.there.get(change.name, False)
        try:
            futures[change.name].result(ANSWER_S)
            self.there[change.name] = known(before, wanted=wanted, is_done=True)
            self.done += 1
        except KafkaException as error:
            # The client asked again after an answer was lost.
            is_same = error.args[0].code() == same
            self.there[change.name] = known(before, wanted=wanted, is_done=is_same)
            if not is_same:
                self._recorder.trouble(f"topic {change.name}: {error.args[0].name()}")
        except TimeoutError:
            self.there[change.name] = None
            self._recorder.trouble(f"topic {change.name}: no answer")


def known(before: bool | None, *, wanted: bool, is_done: bool) -> bool | None:
    """Whether a topic exists after a request. Where nobody knew before, an older request without an answer may be under
    way, and is done after this one: its client has closed the connection, and the broker reads it all the same."""
    return wanted if is_done and before is not None else None


def wrong_topics(there: dict[str, bool | None], seen: set[str]) -> list[str]:
    """What a broker's list of topics says that cannot be."""
    missing = [f"{name} was made and is not there" for name, is_there in there.items() if is_there and name not in seen]
    extra = [
        f"{name} was deleted and is there" for name, is_there in there.items() if is_there is False and name in seen
    ]
    return missing + extra
