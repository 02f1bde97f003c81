"""How many a second: the window of Kafka's quotas."""

import pytest

from holdfast.security.event_rate import EventRate


def test_a_start_is_allowed_a_burst_and_no_more() -> None:
    rate = EventRate()
    for _ in range(100):
        rate.add(1, 5_000)
    assert (rate.per_second(5_000), rate.delay_ms(10, 5_000)) == (10, 0), "of ten seconds at once"
    rate.add(1, 5_000)
    assert rate.delay_ms(10, 5_000) == 100, "one more takes a tenth of a second at 10 a second"


def test_the_window_is_eleven_samples_of_a_second() -> None:
    rate = EventRate()
    for second in range(30):
        rate.add(10, second * 1000)
        assert rate.per_second(second * 1000) == pytest.approx(10 if second >= 10 else second + 1, rel=0.11)
    assert not rate.is_over(39_999)
    assert rate.is_over(40_000)
    assert rate.per_second(40_000) == 0


def test_what_was_added_can_be_taken_back() -> None:
    rate = EventRate()
    rate.add(1, 100)
    rate.add(-1, 100)
    assert rate.per_second(100) == 0


def test_nothing_brings_a_rate_back_to_none() -> None:
    rate = EventRate(samples=3, sample_ms=10)
    assert rate.delay_ms(0, 0) == 0
    rate.add(1, 0)
    assert rate.delay_ms(0, 0) == 30, "as long as the window: until all is forgotten"


def test_a_client_that_waits_as_long_as_it_is_told_keeps_its_rate() -> None:
    rate, now_ms, done = EventRate(), 0, 0
    while now_ms < 60_000:
        rate.add(1, now_ms)
        done += 1
        now_ms += rate.delay_ms(20, now_ms)
    assert 60 * 20 * 0.9 <= done - 200 <= 60 * 20 * 1.1, "beside the burst at the start"
