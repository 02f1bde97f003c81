"""Which steps from line to line a call of ours takes: the feedback that keeps an input as a parent of others.

Slow (each line is a call), so only a sample of the inputs goes through it, and what the tight loop found new.
"""

import sys
from types import CodeType, FrameType
from typing import Any

import holdfast

_OURS = holdfast.__path__[0]


class Coverage:
    """The steps seen so far: (code, line before, line)."""

    def __init__(self) -> None:
        self.steps: set[tuple[int, int, int]] = set()
        self.lines: set[tuple[int, int]] = set()
        self._found = False
        self._codes: dict[int, CodeType] = {}  # keeps them alive, so that an id stays theirs
        self._ignored: set[int] = set()

    def trace(self, run: Any, data: bytes) -> bool:
        """Call ``run(data)``; whether it took a step that is new. Its errors come through."""
        self._found = False
        sys.settrace(self._enter)
        try:
            run(data)
        finally:
            sys.settrace(None)
            found = self._found
        return found

    @property
    def found(self) -> bool:
        """Whether the last call of ``trace``, also one that raised, took a new step."""
        return self._found

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        key = id(code)
        if key in self._ignored:
            return None
        if key not in self._codes:
            self._codes[key] = code
            if not code.co_filename.startswith(_OURS):
                self._ignored.add(key)
                return None
        before = 0
        steps, lines = self.steps, self.lines

        def line(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal before
            if event == "line":
                number = frame.f_lineno
                step = (key, before, number)
                if step not in steps:
                    steps.add(step)
                    lines.add((key, number))
                    self._found = True
                before = number
            return line

        return line
