"""One fetch session of a consumer with one broker (KIP-227), as the consumer keeps it. Pure.

Owns what the broker remembers and in which epoch, so that a request names only what is new. A request counts as sent
when it is made: whose answer is given up has been sent all the same, and the broker has taken it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.model.types import Offset, TopicPartition

FULL: Final = 0
"""The epoch of a request that names all partitions and asks for a session."""
_LAST_EPOCH: Final = 0x7FFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """What one request says."""

    session_id: int
    epoch: int
    changed: Mapping[TopicPartition, Offset]
    """Partitions that the broker does not know, or knows with another offset."""
    forgotten: tuple[TopicPartition, ...]


class FetchSession:
    """See the module's docstring. A broker that gives no session (id 0) is asked in full each time."""

    def __init__(self) -> None:
        self._id = 0
        self._epoch = FULL
        self._known: dict[TopicPartition, Offset] = {}

    @property
    def session_id(self) -> int:
        """0 if there is none."""
        return self._id

    def request(self, wanted: Mapping[TopicPartition, Offset]) -> SessionRequest:
        """The next request, which wants these offsets and no others."""
        if self._id == 0:
            return SessionRequest(session_id=0, epoch=FULL, changed=dict(wanted), forgotten=())
        forgotten = tuple(tp for tp in self._known if tp not in wanted)
        changed = {tp: offset for tp, offset in wanted.items() if self._known.get(tp) != offset}
        epoch, self._epoch = self._epoch, 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        self._known = dict(wanted)
        return SessionRequest(session_id=self._id, epoch=epoch, changed=changed, forgotten=forgotten)

    def answered(self, request: SessionRequest, session_id: int) -> None:
        """The answer to ``request`` named this session."""
        if request.epoch == FULL and self._id == 0 and session_id != 0:
            self._id, self._epoch, self._known = session_id, 1, dict(request.changed)

    def lost(self) -> None:
        """The broker knows of no such session, or stands in another epoch: the next request is full."""
        self._id, self._epoch, self._known = 0, FULL, {}
