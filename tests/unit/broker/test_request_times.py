"""Which stage of a request took how long, and when it counts."""

from __future__ import annotations

import dataclasses

from holdfast.broker.request_times import STAGES, AnswerCount, ApiReading, Owed, RequestTimes, both
from holdfast.model.histogram import EVERY, EXACT
from holdfast.protocol.apis import ApiKey
from holdfast.protocol.framing import RequestHeader
from holdfast.replication.types import ProduceResult


@dataclasses.dataclass
class Request:
    """A request whose times the test says."""

    header: RequestHeader
    is_follower: bool = False
    started_s: float = 10.0
    finished_s: float = 10.0
    remote_s: float = 0.0
    appended: ProduceResult | None = None
    weight: int = 1


def request(api: int = ApiKey.PRODUCE, version: int = 9, **times: float | ProduceResult) -> Request:
    return Request(RequestHeader(int(api), version, 1, "t", 0), **times)  # type: ignore[arg-type]


def milliseconds(reading: ApiReading) -> dict[str, float]:
    return {stage: each.sum_us / 1000 for stage, each in zip(STAGES, reading.ever, strict=True)}


def test_the_stages_add_up_to_the_whole() -> None:
    times = RequestTimes()
    times.sent(
        request(appended=ProduceResult(None, began_ns=10_002_000_000, waited_ns=5_000_000), finished_s=10.010),
        10.018,
        10.012,
    )
    [produce] = times.read()
    found = {stage: round(ms, 2) for stage, ms in milliseconds(produce).items()}
    assert produce.name == "Produce"
    assert found == {
        "total": 18, "request_queue": 2, "local": 3, "remote": 5, "response_queue": 2, "response_send": 6,
    }  # fmt: skip


def test_what_took_no_time_is_an_observation_of_nothing() -> None:
    times = RequestTimes()
    for _ in range(5):
        times.sent(request(ApiKey.METADATA, 12, finished_s=10.001), 10.001, 10.001)
    [metadata] = times.read()
    assert [each.observations for each in metadata.ever] == [5] * len(STAGES)
    assert metadata.ever[STAGES.index("remote")].counts[0] == 5


def test_fetches_are_told_apart_by_who_asks_and_counted_together() -> None:
    times = RequestTimes()
    for is_follower in (True, False, False):
        fetch = request(ApiKey.FETCH, 16)
        fetch.is_follower = is_follower
        version = times.version_of(fetch.header)
        weights_of(1, version.of_followers if is_follower else version.of_clients)
        times.sent(fetch, 10.001, 10.0)
    assert times.requests() == {("FetchConsumer", 16): 2, ("FetchFollower", 16): 1, ("Fetch", 16): 3}
    consumer, follower = times.read()
    assert (consumer.name, follower.name) == ("FetchConsumer", "FetchFollower")
    assert both(consumer.ever, follower.ever)[0].observations == 3


def test_versions_that_nobody_speaks_are_one() -> None:
    times = RequestTimes()
    for version in (300, 301, -7, 32_000):
        weights_of(1, times.version_of(request(ApiKey.API_VERSIONS, version).header).of_clients)
    assert times.requests() == {("ApiVersions", -1): 4}


def test_a_request_stands_for_those_that_were_not_timed() -> None:
    times = RequestTimes()
    times.sent(
        request(weight=16, appended=ProduceResult(None, began_ns=10_002_000_000), finished_s=10.010), 10.010, 10.010
    )
    times.sent(request(weight=1, finished_s=10.001), 10.001, 10.001)
    [produce] = times.read()
    assert [each.observations for each in produce.ever] == [17] * len(STAGES)
    assert round(produce.ever[0].sum_us / 1000) == 161
    assert produce.ever[STAGES.index("request_queue")].counts[0] == 1


def test_errors_are_counted_by_api() -> None:
    times = RequestTimes()
    for code in (6, 6, 56):
        times.failed(ApiKey.PRODUCE, code)
    assert times.errors == {("Produce", 6): 2, ("Produce", 56): 1}


def test_lately_is_what_came_in_the_last_minute() -> None:
    times = RequestTimes()
    times.sent(request(finished_s=10.5), 10.5, 10.5)
    for _ in range(7):
        times.remember()
    times.sent(request(finished_s=10.001), 10.001, 10.001)
    [produce] = times.read()
    assert (produce.ever[0].observations, produce.lately[0].observations) == (2, 1)
    assert produce.lately[0].quantiles()[-1][1] < 2000


class Loop:
    """A clock."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def time(self) -> float:
        return self.now_s


def test_an_answer_counts_when_its_last_byte_is_taken() -> None:
    times, loop = RequestTimes(), Loop(10.5)
    owed = Owed(times)
    owed.took([(100, request(finished_s=10.1))], 0, 10.1, loop)  # type: ignore[arg-type]
    owed.took([(150, request(finished_s=10.1))], 0, 10.2, loop)  # type: ignore[arg-type]
    owed.sent(30, loop)  # type: ignore[arg-type]
    assert (times.read(), len(owed.answers)) == ([], 2)
    owed.sent(70, loop)  # type: ignore[arg-type]
    assert times.read()[0].ever[0].observations == 1
    loop.now_s = 11.0
    owed.sent(50, loop)  # type: ignore[arg-type]
    [produce] = times.read()
    assert round(produce.ever[STAGES.index("response_send")].sum_us / 1e6, 3) == 1.2
    assert round(produce.ever[STAGES.index("response_queue")].sum_us / 1e6, 3) == 0.1


def test_a_request_without_an_answer_is_not_kept() -> None:
    times, loop = RequestTimes(), Loop(10.0)
    owed = Owed(times)
    owed.took([(10, request())], 0, 10.0, loop)  # type: ignore[arg-type]
    for _ in range(1000):
        owed.took([(0, request())], 0, 10.0, loop)  # type: ignore[arg-type]
    assert len(owed.answers) == 1
    assert times.read()[0].ever[0].observations == 1000


def test_bytes_of_answers_that_are_not_timed_count_all_the_same() -> None:
    """One of 50 bytes that is, behind 100 of others, of which the socket takes 60 at once, and another one later."""
    times, loop = RequestTimes(), Loop(10.5)
    owed = Owed(times)
    owed.took([(150, request())], 60, 10.1, loop)  # type: ignore[arg-type]
    owed.sent(89, loop)  # type: ignore[arg-type]
    assert times.read() == []
    owed.took([(31, request(weight=3))], 0, 10.2, loop)  # type: ignore[arg-type]
    owed.sent(1, loop)  # type: ignore[arg-type]
    assert times.read()[0].ever[0].observations == 1
    owed.sent(30, loop)  # type: ignore[arg-type]
    assert (times.read()[0].ever[0].observations, len(owed.answers)) == (4, 0)


def test_after_many_one_of_so_many_is_timed_and_stands_for_the_others() -> None:
    times = RequestTimes()
    counted = times.version_of(request().header).of_clients
    assert weights_of(EXACT, counted) == [1] * EXACT
    assert weights_of(3 * EVERY + 5, counted) == [EVERY] * 3
    assert times.requests() == {("Produce", 9): EXACT + 3 * EVERY + 5}
    times.remember()  # ten seconds are over
    assert times.requests() == {("Produce", 9): EXACT + 3 * EVERY + 5}
    assert weights_of(EVERY + 5, counted) == [6, *[1] * (EVERY + 4)], "the first stands for those before it"
    assert times.requests() == {("Produce", 9): EXACT + 4 * EVERY + 10}


def weights_of(requests: int, counted: AnswerCount) -> list[int]:
    """Of those of so many that are timed, when each is counted as a connection does it."""
    found = []
    for _ in range(requests):
        counted.left -= 1
        if not counted.left:
            found.append(counted.time_one())
    return found
