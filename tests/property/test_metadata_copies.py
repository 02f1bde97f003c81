"""Two brokers judge the copies of the metadata differently, and the locks keep neither from reigning (decision 0009).

What each can reach breaks and is mended by itself; one witness of three always answers both. They claim, commit, probe,
decide one thing in passing (decision 0019) and are killed, also in the middle of what the other one does: between two
of its file operations. Then: a commit that returned is in what every later claim loads, whoever made it: no two of
different claims count apart.
No copy is taken for damaged.

Not shown: nothing hangs here.
"""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.coordination.embedded import EmbeddedStore, Witness
from holdfast.coordination.lanes import InlineLanes
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.records import FeatureLevelRecord
from holdfast.metadata.store import Candidate, Claim
from holdfast.model.errors import HoldfastError
from tests.simulation.device import Life
from tests.simulation.disk import SimDisk, SimFiles, SimLockFile

COPIES = ("/m/copy-1", "/m/copy-2")
WITNESSES = ("/m/log-1", "/m/log-2", "/m/log-3")
MAY_BREAK = {1: (*COPIES, WITNESSES[0]), 2: (*COPIES, WITNESSES[1]), 3: ()}
"""By broker. The third witness answers everybody."""
DEEPEST = 160
"""File operations of an action after which another one may come between."""


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What one broker does; ``between``: what happens after so many of its file operations."""

    broker: int
    what: str
    at: str = ""
    after: int = 0
    between: Action | None = None


class LocklessFiles(SimFiles):
    """Each process has lock files of its own, and every directory is a disk."""

    __slots__ = ()

    def _own(self, path: str) -> str:
        return f"{path}-{self.process}" if path.endswith("/lock") else path

    def open_lock(self, path: str) -> SimLockFile:
        return SimFiles.open_lock(self, self._own(path))

    def inode(self, path: str) -> int | None:
        return SimFiles.inode(self, self._own(path))

    def device(self, path: str) -> int:
        SimFiles.device(self, path)
        disks = (*COPIES, *WITNESSES)
        return next((number for number, disk in enumerate(disks) if f"{path}/".startswith(f"{disk}/")), len(disks))


class Run:
    """The machine, and what its brokers said."""

    def __init__(self) -> None:
        self.disk = SimDisk(random.Random(1), now_ms=lambda: 1000)
        self.disk.mount_point("/m")
        self.disk.fault = self._before_operation
        self.bad: set[tuple[int, str]] = set()
        self.acting: list[int] = [3]
        self.waiting: tuple[int, Action] | None = None
        self.processes = self.names = self.ids = 0
        self.stores: dict[int, EmbeddedStore] = {}
        self.claims: dict[int, Claim] = {}
        self.counted: dict[str, int] = {}
        """Name -> epoch of the claim under which its commit returned."""
        self.loaded: dict[int, set[str]] = {}
        """Epoch -> what the claim of it loaded."""
        files = self._files()
        for path in WITNESSES:
            files.makedirs(path)
        for broker in (1, 2):
            self.start(broker)

    def _new_id(self) -> UUID:
        self.ids += 1
        return UUID(int=self.ids)

    def _files(self) -> LocklessFiles:
        self.processes += 1
        process = f"process-{self.processes}"
        files = LocklessFiles(self.disk, process, Life())
        files.live_as(Life())
        return files

    def start(self, broker: int) -> None:
        """A new process, after whatever there was."""
        self.claims.pop(broker, None)
        self.stores[broker] = self._store(broker)

    def _store(self, broker: int | None) -> EmbeddedStore:
        return EmbeddedStore(
            COPIES, files=self._files(), snapshot_bytes=600, clock=lambda: 1000, new_id=self._new_id,
            lanes=InlineLanes(), witness=Witness(broker_id=broker, directories=WITNESSES, makes_place=True),
        )  # fmt: skip

    def _before_operation(self, operation: str, path: str) -> None:
        if self.waiting is not None:
            left, action = self.waiting
            self.waiting = (left - 1, action) if left else None
            if not left:
                self.act(action)
        for broker, directory in self.bad:
            if broker == self.acting[-1] and f"{path}/".startswith(f"{directory}/"):
                raise OSError(errno.EIO, "Input/output error", path)

    def act(self, action: Action) -> None:
        """Do it, and what comes between."""
        if action.between is not None:
            self.waiting = (action.after, action.between)
        self.acting.append(action.broker)
        try:
            self._do(action)
        finally:
            self.acting.pop()
            if action.between is not None:
                self.waiting = None

    def _do(self, action: Action) -> None:
        broker = action.broker
        if action.what == "break":
            self.bad.add((broker, action.at))
        elif action.what == "mend":
            self.bad.discard((broker, action.at))
        elif action.what == "restart":
            self.start(broker)
        elif action.what == "claim":
            self.claim(broker)
        elif action.what == "pass":
            self.decide_in_passing(broker)
        elif broker in self.claims:
            claim, store = self.claims[broker], self.stores[broker]
            try:
                if action.what == "tend":
                    store.tend(claim.epoch)
                else:
                    self.commit(store, claim)
            except HoldfastError:
                self.claims.pop(broker, None)

    def commit(self, store: EmbeddedStore, claim: Claim) -> None:
        record = self._new_record()
        store.commit([record], claim.epoch)
        self._count(record.name, claim.epoch)

    def _new_record(self) -> FeatureLevelRecord:
        self.names += 1
        return FeatureLevelRecord(name=f"feature-{self.names}", level=1)

    def _count(self, name: str, of: int) -> None:
        """A commit has returned."""
        self.counted[name] = of
        for epoch, loaded in self.loaded.items():
            assert epoch <= of or name in loaded, f"{name} of {of} counts and claim {epoch} has it not"

    def decide_in_passing(self, broker: int) -> None:
        """By another process, which has no id."""
        record = self._new_record()
        self.processes += 1

        def decide(image: ClusterImage) -> tuple[list[FeatureLevelRecord], int]:
            self._note_loaded(image.controller_epoch, set(image.features))
            return [record], image.controller_epoch

        try:
            epoch = self._store(None).in_passing(-1 - self.processes, decide)
        except HoldfastError as e:
            assert "is damaged" not in str(e)
            return
        assert epoch is not None  # nobody's locks are in its way here
        self._count(record.name, epoch)

    def claim(self, broker: int) -> bool:
        self.claims.pop(broker, None)
        store = self.stores[broker]
        try:
            claim = store.claim(Candidate(broker_id=broker, host="h", port=1))
            loaded = store.load(claim)
        except HoldfastError as e:
            assert "is damaged" not in str(e)
            return False
        reasons = [copy.reason or "" for copy in store.copies()]
        assert not any("is damaged" in reason for reason in reasons), reasons
        self._note_loaded(
            claim.epoch, {record.name for record in loaded.records if isinstance(record, FeatureLevelRecord)}
        )
        self.claims[broker] = claim
        return True

    def _note_loaded(self, of: int, found: set[str]) -> None:
        """A claim has loaded these."""
        assert of not in self.loaded, f"epoch {of} is two claims'"
        lost = {name for name, epoch in self.counted.items() if epoch < of} - found
        assert not lost, f"claim {of} has not {lost}, which counted"
        self.loaded[of] = found

    def end(self) -> None:
        """Everything works again: a third broker finds all that counted."""
        self.bad.clear()
        self.start(3)
        assert any(self.claim(3) for _ in range(3)), "a whole machine has no controller"
        assert set(self.counted) <= self.loaded[max(self.loaded)]


def _plain(broker: int) -> st.SearchStrategy[Action]:
    does = st.sampled_from(["claim", "claim", "commit", "commit", "commit", "tend", "pass", "restart", "break", "mend"])
    return st.builds(Action, broker=st.just(broker), what=does, at=st.sampled_from(MAY_BREAK[broker]))


def _interrupted(broker: int) -> st.SearchStrategy[Action]:
    return st.builds(
        Action, broker=st.just(broker), what=st.sampled_from(["claim", "commit", "tend", "pass"]),
        after=st.one_of(st.integers(0, 20), st.integers(0, DEEPEST)), between=_plain(3 - broker),
    )  # fmt: skip


VIEWS = st.tuples(
    st.sets(st.sampled_from(MAY_BREAK[1]), max_size=2), st.sets(st.sampled_from(MAY_BREAK[2]), max_size=2)
)
"""What each of the two cannot reach, from the first commit on."""
ACTIONS = st.lists(st.one_of(_plain(1), _plain(2), _interrupted(1), _interrupted(2)), min_size=4, max_size=24)


def judged(views: tuple[set[str], set[str]], actions: Sequence[Action]) -> Run:
    """A run whose first commit is on both copies."""
    run = Run()
    for action in (Action(broker=1, what="claim"), Action(broker=1, what="commit")):
        run.act(action)
    run.bad |= {(broker, path) for broker, paths in enumerate(views, 1) for path in paths}
    for action in actions:
        run.act(action)
    return run


@given(views=VIEWS, actions=ACTIONS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_A5_no_two_commits_of_different_claims_both_count(
    views: tuple[set[str], set[str]], actions: list[Action]
) -> None:
    judged(views, actions).end()


@pytest.mark.parametrize("second", ["commit", "tend"])
@pytest.mark.parametrize(
    "views", [({COPIES[0]}, {COPIES[1]}), ({COPIES[0]}, set()), (set(), {COPIES[1]}), (set(), set())]
)
def test_A5_a_claim_between_any_two_operations_of_the_other(views: tuple[set[str], set[str]], second: str) -> None:
    for after in range(DEEPEST):
        between = Action(broker=2, what="claim")
        actions = [
            Action(broker=1, what=second, after=after, between=between),
            *(Action(broker=broker, what="commit") for broker in (1, 2, 1, 2)),
        ]
        judged(views, actions).end()


def test_A5_of_two_claims_at_once_in_different_copies_one_gives_up() -> None:
    """Both would have the same epoch: the witness that both reach keeps the note of the first."""
    for after in range(DEEPEST):
        actions = [Action(broker=1, what="claim", after=after, between=Action(broker=2, what="claim"))]
        actions += [Action(broker=broker, what="commit") for broker in (1, 2, 1, 2)]
        judged(({COPIES[0]}, {COPIES[1]}), actions).end()


@pytest.mark.parametrize(
    ("first", "second"), [("pass", "pass"), ("pass", "claim"), ("claim", "pass"), ("commit", "pass")]
)
@pytest.mark.parametrize("views", [({COPIES[0]}, {COPIES[1]}), ({COPIES[0]}, set()), (set(), set())])
def test_K426_17_a_decision_in_passing_between_any_two_operations_of_another(
    views: tuple[set[str], set[str]], first: str, second: str
) -> None:
    for after in range(DEEPEST):
        actions = [Action(broker=1, what=first, after=after, between=Action(broker=2, what=second))]
        actions += [Action(broker=broker, what="commit") for broker in (1, 2)]
        judged(views, actions).end()


@pytest.mark.parametrize("views", [(set(), set()), ({COPIES[0]}, set()), (set(), {COPIES[0]})])
def test_A5_a_claim_that_is_overtaken_takes_nothing_of_the_later_one(views: tuple[set[str], set[str]]) -> None:
    """They have a copy in common. The later one goes on in it, and what it commits is found."""
    for after in range(DEEPEST):
        actions = [Action(broker=1, what="claim", after=after, between=Action(broker=2, what="claim"))]
        actions += [Action(broker=2, what="commit"), Action(broker=1, what="commit"), Action(broker=2, what="commit")]
        judged(views, actions).end()


def test_the_runs_get_somewhere() -> None:
    """Commits count under both brokers, with copies that each judges for itself."""
    run = Run()
    story = [
        Action(broker=1, what="claim"), Action(broker=1, what="break", at=COPIES[0]), Action(broker=1, what="commit"),
        Action(broker=2, what="claim"), Action(broker=2, what="commit"), Action(broker=1, what="commit"),
    ]  # fmt: skip
    for action in story:
        run.act(action)
    assert sorted(run.counted.values()) == sorted(run.loaded)
    assert set(run.claims) == {2}
    assert run.stores[2]._copies.good == COPIES[1:]
    run.end()


@pytest.mark.parametrize("then", [[], [Action(broker=2, what="claim")], [Action(broker=1, what="commit")]])
def test_A5_a_commit_between_any_two_operations_of_a_claim_that_cannot_reach_its_copy(then: list[Action]) -> None:
    """The claim gives up, and its note, which is the newest, does not leave out the copy that has the commit."""
    for after in range(DEEPEST):
        actions = [
            Action(broker=1, what="break", at=COPIES[0]),
            Action(broker=2, what="break", at=COPIES[1]),
            Action(broker=2, what="claim", after=after, between=Action(broker=1, what="commit")),
        ]
        judged((set(), set()), [*actions, *then]).end()
