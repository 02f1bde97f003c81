"""Limits of connections, and of how fast they come: exact at the border."""

import random

import pytest

from holdfast.model.config import BrokerConfig
from holdfast.security import connection_limits
from holdfast.security.connection_limits import ConnectionCounts, ConnectionLimits, ListenerLimits, Refusal

TWO = {
    "listeners": "CLIENTS://h:9092,BROKERS://h:9093",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}


def counts(limits: ConnectionLimits, *, brokers_apart: bool = True, **rates: float) -> ConnectionCounts:
    """``rates``: of addresses, by their last number."""
    made = ConnectionCounts(limits, lambda host: rates.get("of_" + host.rpartition(".")[2]))
    made.add_listener("CLIENTS", for_brokers=not brokers_apart)
    made.add_listener("BROKERS", for_brokers=True)
    return made


def opened(made: ConnectionCounts, number: int, listener: str = "CLIENTS", host: str = "10.0.0.1") -> Refusal | None:
    """Opens so many, one after the other; the refusal of the next one."""
    for _ in range(number):
        assert made.refusal(listener, host) is None
        made.opened(listener, host)
    return made.refusal(listener, host)


def test_limits_from_a_configuration() -> None:
    given = {
        "max.connections": "10", "listener.name.clients.max.connections": "7", "max.connections.per.ip": "3",
        "max.connections.per.ip.overrides": "::ffff:10.0.0.7:5",
        "listener.name.brokers.max.connection.creation.rate": "9",
    }  # fmt: skip
    assert ConnectionLimits.of(BrokerConfig.parse({**TWO, **given}), ["CLIENTS", "BROKERS"]) == ConnectionLimits(
        connections=10, per_ip=3, overrides={"10.0.0.7": 5},
        listeners={"CLIENTS": ListenerLimits(connections=7), "BROKERS": ListenerLimits(connections=10, rate=9)},
    )  # fmt: skip
    limits = ConnectionLimits(connections=4, rate=5)
    assert limits.of_listener("ANY") == ListenerLimits(connections=4, rate=5)


def test_an_address_has_as_many_as_it_may_and_not_one_more() -> None:
    made = counts(ConnectionLimits(per_ip=3, overrides={"10.0.0.9": 1, "10.0.0.8": 0}))
    assert opened(made, 2) is None
    assert opened(made, 1) is Refusal.ADDRESS
    assert made.refusal("BROKERS", "10.0.0.1") is Refusal.ADDRESS, "by whichever listener"
    assert opened(made, 1, host="10.0.0.9") is Refusal.ADDRESS
    assert opened(made, 0, host="10.0.0.8") is Refusal.ADDRESS
    assert opened(made, 2, host="10.0.0.2") is None
    made.closed("CLIENTS", "10.0.0.1")
    assert opened(made, 1) is Refusal.ADDRESS
    assert made.told(Refusal.ADDRESS, "CLIENTS", "10.0.0.9") == "max.connections.per.ip=1 for 10.0.0.9"


def test_a_listener_and_the_broker_have_their_own_limits() -> None:
    made = counts(ConnectionLimits(connections=5, listeners={"CLIENTS": ListenerLimits(connections=3)}))
    assert opened(made, 3) is Refusal.LISTENER
    assert made.told(Refusal.LISTENER, "CLIENTS", "h") == "listener.name.clients.max.connections=3"
    alone = counts(ConnectionLimits(connections=5), brokers_apart=False)
    assert opened(alone, 4) is None
    assert opened(alone, 1, "BROKERS") is Refusal.BROKER
    assert alone.told(Refusal.BROKER, "BROKERS", "h") == "max.connections=5"


def test_brokers_come_in_where_clients_have_all_the_places() -> None:
    made = counts(ConnectionLimits(connections=3))
    assert opened(made, 3) is Refusal.LISTENER
    assert opened(made, 2, "BROKERS") is None
    assert made.excess == 2, "so many clients go"
    assert opened(made, 1, "BROKERS") is Refusal.LISTENER, "brokers are limited too, by themselves"
    for _ in range(3):
        made.closed("CLIENTS", "10.0.0.1")
    assert (made.excess, made.total) == (0, 3)
    assert made.refusal("CLIENTS", "10.0.0.1") is Refusal.BROKER


def test_over_its_rate_a_listener_waits_and_the_broker_waits_for_all_but_brokers() -> None:
    made = counts(ConnectionLimits(rate=2, listeners={"CLIENTS": ListenerLimits(), "BROKERS": ListenerLimits(rate=3)}))
    assert [made.delay_ms("CLIENTS", 0) for _ in range(21)] == [0] * 20 + [500]
    assert [made.delay_ms("BROKERS", 0) for _ in range(31)] == [0] * 30 + [333], "by their own rate alone"
    assert [made.delay_ms("CLIENTS", 0) for _ in range(3)][-1] == connection_limits.LONGEST_DELAY_MS
    assert made.delay_ms("CLIENTS", 20_000) == 0


def test_an_address_over_its_rate_is_closed_and_does_not_count_for_the_others() -> None:
    made = counts(ConnectionLimits(rate=100), of_7=1.0)

    def arrive(host: str) -> int:
        assert made.delay_ms("CLIENTS", 0) == 0
        return made.ip_delay_ms("CLIENTS", host, 0)

    assert [arrive("10.0.0.7") for _ in range(10)] == [0] * 10
    assert [arrive("10.0.0.7") for _ in range(900)] == [1000] * 900, "each is told the same: none of them counts"
    assert [arrive("10.0.0.8") for _ in range(990)] == [0] * 990
    assert made.delay_ms("CLIENTS", 0) > 0
    made.forget_idle(10_900)
    assert made.ip_delay_ms("CLIENTS", "10.0.0.7", 11_000) == 0


def test_rates_of_addresses_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "MOST_ADDRESSES", 3)
    made = ConnectionCounts(ConnectionLimits(), lambda host: 0.1)
    made.add_listener("CLIENTS", for_brokers=False)
    assert [made.ip_delay_ms("CLIENTS", f"10.0.0.{n}", n) for n in range(4)] == [0] * 4
    assert len(made._address_rates) == 3
    assert made.ip_delay_ms("CLIENTS", "10.0.0.3", 5) == 1000
    made.forget_idle(11_001)
    assert list(made._address_rates) == ["10.0.0.2", "10.0.0.3"]
    made.forget_idle(11_100)
    assert not made._address_rates
    made.forget_idle(11_100)


def test_counts_are_those_of_who_is_there_whatever_comes_and_goes() -> None:
    rng = random.Random(15)
    made = counts(ConnectionLimits(connections=40, per_ip=9, overrides={"10.0.0.2": 4}))
    there: list[tuple[str, str]] = []
    for _ in range(5_000):
        if there and rng.random() < 0.48:
            made.closed(*there.pop(rng.randrange(len(there))))
            continue
        who = rng.choice(("CLIENTS", "CLIENTS", "BROKERS")), f"10.0.0.{rng.randrange(6)}"
        of_address = sum(host == who[1] for _, host in there)
        if of_address >= (4 if who[1] == "10.0.0.2" else 9):
            expected: Refusal | None = Refusal.ADDRESS
        elif sum(listener == who[0] for listener, _ in there) >= 40:
            expected = Refusal.LISTENER
        elif len(there) >= 40 and who[0] == "CLIENTS":
            expected = Refusal.BROKER
        else:
            expected = None
        assert made.refusal(*who) is expected
        if expected is None:
            made.opened(*who)
            there.append(who)
    assert made.total == len(there)
