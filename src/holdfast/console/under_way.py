"""Answers that are being made, by the session of who asked for them: none goes on when its session is over.

A stream of records or of news would be sent for as long as its page is open, a search for ten minutes, in the name of a
user who has logged out. Owns what cuts them; knows nothing of what they are.
"""

import asyncio
from collections.abc import Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class AnswersUnderWay:
    """On the loop of the pages."""

    def __init__(self) -> None:
        self._of: dict[bytes, set[asyncio.Timeout]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def keep(self, sessions: Collection[bytes]) -> None:
        """Those of other sessions are cut, now."""
        for key in self._of.keys() - frozenset(sessions):
            for limit in self._of.pop(key):
                limit.reschedule(asyncio.get_running_loop().time())

    async def answer(
        self, session: bytes, app: ASGIApp, over: ASGIApp, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """What ``app`` answers, as long as the session is. One that was cut before it had begun is answered by
        ``over``; what has begun ends where it is."""
        begun = whole = sized = False

        async def send_on(message: Message) -> None:
            nonlocal begun, whole, sized
            await send(message)
            if message["type"] == "http.response.start":
                begun = True
                sized = any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))
            else:
                whole = not message.get("more_body", False)

        try:
            async with asyncio.timeout(None) as limit:
                self._of.setdefault(session, set()).add(limit)
                try:
                    await app(scope, receive, send_on)
                finally:
                    self._forget(session, limit)
        except TimeoutError:
            if not limit.expired():
                raise
            if not begun:
                await over(scope, receive, send)
            elif not whole and not sized:  # with a length the server closes: it cannot be ended
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _forget(self, session: bytes, limit: asyncio.Timeout) -> None:
        of = self._of.get(session)
        if of is not None:
            of.discard(limit)
            if not of:
                del self._of[session]
