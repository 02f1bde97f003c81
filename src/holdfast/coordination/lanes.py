"""Asking several directories at once, without one that does not answer holding up the others.

Owns a thread for each directory that is asked (``ThreadLanes``). What is asked of one directory runs in order; what is
asked of several runs at the same time. A thread that hangs in the kernel is not waited for, and what was queued behind
it and is wanted no more never begins. What has begun may still land when the disk answers again: whoever asks must
see to it that this does no harm (metadata_log.py).

``InlineLanes`` runs everything at once in the caller: for disks that never hang.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
IDLE_S = 5.0
"""A thread without work ends after this long."""
SAY_AFTER_S = 1.0
"""An answer that everybody waits for and that does not come for this long is worth a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Generic[T]):
    """What one directory answered: a value, or the error that it raised."""

    value: T | None = None
    error: Exception | None = None


class Background(Protocol):
    """Work that nobody waits for."""

    @property
    def answer(self) -> Answer[Any] | None:
        """None while it is not done."""


class Lanes(Protocol):
    """See the module's docstring. Callers are threads that may block."""

    def ask(
        self, jobs: Mapping[K, Callable[[], T]], *, patience_s: float, limit_s: float | None = None
    ) -> dict[K, Answer[T]]:
        """Run all at the same time. Who is missing in the result has not answered.

        Returns when all have answered, or ``patience_s`` after one has without an error. Waits on when no
        one has answered well, up to ``limit_s`` (None: for as long as it takes)."""

    def begin(self, key: Hashable, job: Callable[[], Any]) -> Background:
        """Run one in turn and do not wait for it."""

    def close(self) -> None:
        """Who waits in ``ask`` is sent back with what there is."""


class _Job:
    __slots__ = ("answer", "begun", "done", "unwanted", "work")

    def __init__(self, work: Callable[[], Any], done: Callable[[], None]) -> None:
        self.work = work
        self.done = done
        self.answer: Answer[Any] | None = None
        self.begun = False
        self.unwanted = False


class Worker:
    """A thread of a lane."""

    __slots__ = ("_thread", "name")

    def __init__(self, thread: threading.Thread) -> None:
        self.name = thread.name
        self._thread = thread

    @property
    def thread_id(self) -> int | None:
        """Of the system; None once it has ended."""
        return self._thread.native_id if self._thread.is_alive() else None


class ThreadLanes:
    """Lanes of a running process. ``thread_made`` is told every thread.

    ``stuck_since_s``: since when, by the monotonic clock, everybody who was asked has been silent; None while somebody
    answers."""

    def __init__(self, name: str, thread_made: Callable[[Worker], None] = lambda worker: None) -> None:
        self._name = name
        self._thread_made = thread_made
        self._changed = threading.Condition()
        self._queues: dict[Hashable, deque[_Job]] = {}
        self._closed = False
        self.stuck_since_s: float | None = None

    def ask(
        self, jobs: Mapping[K, Callable[[], T]], *, patience_s: float, limit_s: float | None = None
    ) -> dict[K, Answer[T]]:
        asked = {key: _Job(work, self._wake) for key, work in jobs.items()}
        start_s = time.monotonic()
        for key, job in asked.items():
            self._submit(key, job)
        told, good_after_s = False, None
        with self._changed:
            while not self._closed:
                left = [job for job in asked.values() if job.answer is None]
                waited_s = time.monotonic() - start_s
                good = any(job.answer is not None and job.answer.error is None for job in asked.values())
                if good and good_after_s is None:
                    good_after_s = waited_s
                if (
                    not left
                    or (good_after_s is not None and waited_s >= good_after_s + patience_s)
                    or (limit_s is not None and waited_s >= limit_s)
                ):
                    break
                if waited_s >= SAY_AFTER_S and not good and not told and limit_s is None:
                    told, self.stuck_since_s = True, start_s
                    log.error(
                        "%s: no answer for %.0f s from %s: decisions wait",
                        self._name,
                        waited_s,
                        ", ".join(map(str, asked)),
                    )
                waits = [SAY_AFTER_S if good_after_s is None else good_after_s + patience_s - waited_s]
                if limit_s is not None:
                    waits.append(limit_s - waited_s)
                self._changed.wait(max(0.001, min(waits)))
            for job in asked.values():
                job.unwanted = True
        if told:
            self.stuck_since_s = None
            log.warning("%s: answers again after %.1f s", self._name, time.monotonic() - start_s)
        return {key: job.answer for key, job in asked.items() if job.answer is not None}

    def begin(self, key: Hashable, job: Callable[[], Any]) -> Background:
        begun = _Job(job, self._wake)
        self._submit(key, begun)
        return begun

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _submit(self, key: Hashable, job: _Job) -> None:
        with self._changed:
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = deque()
                name = f"{self._name}-{key}"
                thread = threading.Thread(target=self._run, args=(key, queue), name=name, daemon=True)
                thread.start()
                self._thread_made(Worker(thread))
            queue.append(job)
            self._changed.notify_all()

    def _next(self, key: Hashable, queue: deque[_Job]) -> _Job | None:
        """The next job that is still wanted; None: nothing came for long, and the thread is forgotten."""
        with self._changed:
            idle_s = time.monotonic() + IDLE_S
            while True:
                while queue:
                    job = queue.popleft()
                    if not job.unwanted:
                        job.begun = True
                        return job
                left_s = idle_s - time.monotonic()
                if left_s <= 0 or self._closed:
                    del self._queues[key]
                    return None
                self._changed.wait(left_s)

    def _run(self, key: Hashable, queue: deque[_Job]) -> None:
        while (job := self._next(key, queue)) is not None:
            try:
                answer: Answer[Any] = Answer(value=job.work())
            except Exception as e:
                answer = Answer(error=_without_frames(e))
            job.answer = answer
            done = job.done
            del job, answer
            done()


class _Done:
    __slots__ = ("answer",)

    def __init__(self, answer: Answer[Any]) -> None:
        self.answer: Answer[Any] | None = answer


class InlineLanes:
    """Everything at once, in the caller. What is no Exception (a simulated kill) passes through."""

    def ask(
        self, jobs: Mapping[K, Callable[[], T]], *, patience_s: float, limit_s: float | None = None
    ) -> dict[K, Answer[T]]:
        return {key: run_job(job) for key, job in jobs.items()}

    def begin(self, key: Hashable, job: Callable[[], Any]) -> Background:
        return _Done(run_job(job))

    def close(self) -> None:
        """Nobody waits."""


def run_job(job: Callable[[], T]) -> Answer[T]:
    """The answer of one job."""
    try:
        return Answer(value=job())
    except Exception as e:
        return Answer(error=e)


def _without_frames(error: Exception) -> Exception:
    """Frames hold on to open files; the error may be kept for long."""
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error


def values_of(answers: Mapping[Any, Answer[Any]]) -> dict[Any, Any]:
    """What those answered that had no error."""
    return {key: answer.value for key, answer in answers.items() if answer.error is None}


def reasons_of(asked: Collection[str], answers: Mapping[str, Answer[Any]]) -> dict[str, str]:
    """Why those did not do it that did not."""
    found = {}
    for path in asked:
        answer = answers.get(path)
        if answer is None:
            found[path] = "no answer"
        elif answer.error is not None:
            found[path] = str(answer.error)
    return found


def errors_of(asked: Collection[str], answers: Mapping[Any, Answer[Any]]) -> str:
    """The same in one line."""
    return "; ".join(f"{path}: {why}" for path, why in reasons_of(asked, answers).items()) or "no directory"


def cause_of(asked: Collection[str], answers: Mapping[Any, Answer[Any]]) -> BaseException | None:
    """The error of a disk, if all have failed (H-23): one that is silent may hold everything and answer yet."""
    if any(path not in answers for path in asked):
        return None
    errors = [answer.error for answer in answers.values() if answer.error is not None]
    causes = [e if isinstance(e, OSError) else e.__cause__ for e in errors]
    return next((cause for cause in causes if isinstance(cause, OSError)), None)
