"""Listeners and addresses: what the keys mean together, and what they refuse."""

import pytest

from holdfast.model.config import BrokerConfig
from holdfast.model.errors import ConfigError
from holdfast.model.listeners import (
    Endpoint,
    Endpoints,
    ListenerUse,
    Listening,
    SecurityProtocol,
    is_loopback,
    is_unspecified,
)

MAP = "listener.security.protocol.map"
BETWEEN = "inter.broker.listener.name"
TWO = {
    "listeners": "CLIENTS://127.0.0.1:9092,BROKERS://127.0.0.1:9093",
    MAP: "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    BETWEEN: "BROKERS",
}


def parse(**values: str) -> Listening:
    return BrokerConfig.parse({name.replace("__", "."): value for name, value in values.items()}).listening


def plain(name: str, host: str, port: int) -> Endpoint:
    return Endpoint(name=name, host=host, port=port)


def test_a_listener_is_a_name_an_address_and_a_protocol() -> None:
    config = BrokerConfig.parse({"listeners": "PLAINTEXT://[::1]:9092"})
    assert config.listeners == (plain("PLAINTEXT", "::1", 9092),)
    assert [str(x) for x in config.listeners] == ["PLAINTEXT://[::1]:9092"]
    assert config.listeners[0].security_protocol is SecurityProtocol.PLAINTEXT
    assert config.advertised_listeners == config.listeners
    assert BrokerConfig.parse({"listeners": "PLAINTEXT://:0"}).listeners == (plain("PLAINTEXT", "", 0),)
    config = BrokerConfig.parse({"advertised.listeners": "PLAINTEXT://kafka.example:19092"})
    assert config.advertised_listeners == (plain("PLAINTEXT", "kafka.example", 19092),)


def test_several_listeners_by_name_in_any_case() -> None:
    found = BrokerConfig.parse({**TWO, "listeners": TWO["listeners"].lower(), BETWEEN: "brokers"}).listening
    assert found.bound == found.advertised == (plain("CLIENTS", "127.0.0.1", 9092), plain("BROKERS", "127.0.0.1", 9093))
    assert (found.inter_broker, found.control_plane) == ("BROKERS", None)
    told = found.endpoints({})
    assert told.for_brokers == told.for_controller == plain("BROKERS", "127.0.0.1", 9093)
    assert told.at("CLIENTS") == plain("CLIENTS", "127.0.0.1", 9092)
    assert told.at("OTHER") is None
    assert told.for_clients == (plain("CLIENTS", "127.0.0.1", 9092),)


def test_what_each_listener_takes() -> None:
    clients, brokers = (BrokerConfig.parse(TWO).listening.use_of(name) for name in ("CLIENTS", "BROKERS"))
    assert clients == ListenerUse(name="CLIENTS", for_brokers=False, for_operators=False)
    assert brokers == ListenerUse(name="BROKERS", for_brokers=True, for_operators=True)
    opened = BrokerConfig.parse({**TWO, "operator.listener.names": "clients"}).listening
    assert opened.use_of("CLIENTS") == ListenerUse(name="CLIENTS", for_brokers=False, for_operators=True)
    alone = BrokerConfig.parse({"listeners": "PLAINTEXT://127.0.0.1:9092"}).listening
    assert alone.use_of("PLAINTEXT") == ListenerUse(name="PLAINTEXT", for_brokers=True, for_operators=True)


def test_a_control_plane_is_the_controllers_and_takes_what_brokers_say() -> None:
    found = BrokerConfig.parse(
        {
            "listeners": "A://127.0.0.1:1,B://127.0.0.1:2,C://127.0.0.1:3",
            MAP: "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT",
            BETWEEN: "B",
            "control.plane.listener.name": "C",
        }
    ).listening
    told = found.endpoints({})
    assert [e.name for e in (told.for_brokers, told.for_controller, *told.for_clients)] == ["B", "C", "A"]
    assert [found.use_of(name).for_brokers for name in "ABC"] == [False, True, True]


def test_any_port_is_told_as_the_one_that_was_bound_and_a_hidden_listener_not_at_all() -> None:
    found = BrokerConfig.parse(
        {
            **TWO,
            "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0,HIDDEN://127.0.0.1:0",
            "advertised.listeners": "CLIENTS://outside:0,BROKERS://inside:7",
            MAP: "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT,HIDDEN:PLAINTEXT",
        }
    ).listening
    assert found.endpoints({"CLIENTS": 5, "BROKERS": 6, "HIDDEN": 8}).listeners == (
        plain("CLIENTS", "outside", 5),
        plain("BROKERS", "inside", 7),
    )


@pytest.mark.parametrize("text", ["", "localhost:9092", "PLAINTEXT://h", "PLAINTEXT://h:99999", "PLAINTEXT://h:²"])
def test_addresses_that_cannot_be(text: str) -> None:
    with pytest.raises(ConfigError, match=r"of listeners: expected (one )?NAME://HOST:PORT"):
        BrokerConfig.parse({"listeners": text})
    if text:  # none are those of listeners
        with pytest.raises(ConfigError, match=r"of advertised\.listeners: expected NAME://HOST:PORT"):
            BrokerConfig.parse({"advertised.listeners": text})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"listeners": "A://h:1,A://h:2"}, r"of listeners: Each listener must have a different name: A is twice"),
        ({"listeners": "A://h:1,B://i:1"}, r"of listeners: Each listener must have a different port: 1 is twice"),
        ({"listeners": "D://h:1"}, r"'D://h:1' of listeners: No security protocol defined for listener D: expected"),
        ({MAP: "A:TLS"}, rf"'A:TLS' of {MAP}: expected NAME:PROTOCOL, the protocol one of PLAINTEXT, SSL, SASL_P"),
        ({MAP: "A"}, rf"'A' of {MAP}: expected NAME:PROTOCOL"),
        ({MAP: "A:PLAINTEXT,a:SSL"}, rf"'a:SSL' of {MAP}: expected each listener once, A is twice"),
        (
            {"advertised.listeners": "A://h:1,C://h:2"},
            r"'C://h:2' of advertised\.listeners: expected a listener of listeners, A, B",
        ),
        ({"advertised.listeners": "A://h:1,A://h:2"}, r"of advertised\.listeners: Each listener must have a differ"),
        ({"advertised.listeners": "A://0.0.0.0:1"}, r"of advertised\.listeners: expected an address that clients can"),
        ({"advertised.listeners": "A://0:1"}, r"of advertised\.listeners: expected an address that clients can"),
        ({"advertised.listeners": "A://[::0]:1"}, r"of advertised\.listeners: expected an address that clients can"),
        ({BETWEEN: "C"}, rf"'C' of {BETWEEN}: expected one of A, B"),
        ({BETWEEN: "B", "advertised.listeners": "A://h:1"}, rf"'B' of {BETWEEN}: expected one of A$"),
        ({BETWEEN: ""}, rf"{BETWEEN} is not set, and no listener .* PLAINTEXT: set {BETWEEN} to one of A, B"),
        ({"security.inter.broker.protocol": "PLAINTEXT"}, "Only one of .* should be set"),
        ({"security.inter.broker.protocol": "TLS", BETWEEN: ""}, r"TLS .*security\.inter\.broker\.protocol.*one of"),
        ({"control.plane.listener.name": "B"}, r"'B' of control\.plane\.listener\.name: expected .* other than B"),
        ({"control.plane.listener.name": "X"}, r"'X' of control\.plane\.listener\.name: expected a listener of adver"),
        ({"operator.listener.names": "X"}, r"'X' of operator\.listener\.names: expected a listener of listeners, A, B"),
    ],
)
def test_what_cannot_be_names_key_value_and_what_was_expected(change: dict[str, str], message: str) -> None:
    good = {"listeners": "A://h:1,B://h:2", MAP: "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT", BETWEEN: "B"}
    assert BrokerConfig.parse(good).listening.inter_broker == "B"
    values = {name: value for name, value in {**good, **change}.items() if value or name != BETWEEN}
    with pytest.raises(ConfigError, match=message):
        BrokerConfig.parse(values)


def test_one_port_may_be_had_of_both_kinds_of_addresses() -> None:
    assert len(BrokerConfig.parse({**TWO, "listeners": "CLIENTS://127.0.0.1:1,BROKERS://[::1]:1"}).listeners) == 2


def test_without_a_name_the_listener_of_brokers_is_that_of_their_protocol() -> None:
    assert parse(listeners="PLAINTEXT://h:1").inter_broker == "PLAINTEXT"
    named = parse(
        listeners="A://h:1,PLAINTEXT://h:2",
        listener__security__protocol__map="A:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        security__inter__broker__protocol="PLAINTEXT",
    )
    assert (named.inter_broker, named.inter_broker_is_given) == ("PLAINTEXT", False)


@pytest.mark.parametrize("host", ["", "192.0.2.1", "::", "0.0.0.0", "broker.example"])
def test_brokers_are_not_taken_from_other_machines_unless_somebody_says_so(host: str) -> None:
    address = f"[{host}]" if ":" in host else host
    values = {"listeners": f"PLAINTEXT://{address}:9092", "advertised.listeners": "PLAINTEXT://me:9092"}
    with pytest.raises(ConfigError, match=rf"{BETWEEN} is not set, and PLAINTEXT://.*:9092 is no loopback address"):
        BrokerConfig.parse(values).listening.refuse()
    said = BrokerConfig.parse({**values, BETWEEN: "PLAINTEXT"}).listening
    said.refuse()
    assert said.warning() == (
        "inter.broker.listener.name: brokers have no listener of their own, clients use PLAINTEXT too: whoever reaches "
        "it can speak as a broker"
    )


def test_on_loopback_one_listener_for_all_is_only_told() -> None:
    alone = BrokerConfig.parse({"listeners": "PLAINTEXT://127.0.0.1:9092"}).listening
    alone.refuse()
    assert alone.warning() is not None
    two = BrokerConfig.parse(TWO).listening
    two.refuse()
    assert two.warning() is None


def test_B8_an_empty_host_is_nobodys_address() -> None:
    with pytest.raises(ConfigError, match=r"'PLAINTEXT://:9092' of advertised\.listeners: expected an address that"):
        BrokerConfig.parse({"listeners": "PLAINTEXT://:9092", BETWEEN: "PLAINTEXT"}).listening.refuse()


def test_every_address_is_known_in_each_spelling() -> None:
    assert [is_unspecified(h) for h in ("0.0.0.0", "::", "0", "0.0", "00.0x0.0", "::0", "0:0::")] == [True] * 7
    assert [is_unspecified(h) for h in ("", "0.0.0.1", "::1", "0.example", "0.0.0.0.0")] == [False] * 5


def test_loopback() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")] == [True] * 4
    assert [is_loopback(host) for host in ("", "0.0.0.0", "::", "10.0.0.1", "localhost.example")] == [False] * 5


def test_endpoints_say_who_uses_which() -> None:
    a, b, c = plain("A", "h", 1), plain("B", "h", 2), plain("C", "h", 3)
    assert Endpoints.of((a, b)).choice == (None, None)
    assert Endpoints.of((a, b), "B").choice == ("B", None)
    assert Endpoints.of((a, b, c), "B", "C").choice == ("B", "C")
    for made in (Endpoints.of((a,)), Endpoints.of((a, b), "B"), Endpoints.of((a, b, c), "A", "C")):
        assert Endpoints.of(made.listeners, *made.choice) == made
    assert Endpoints.one("h", 1, "A").for_clients == (a,), "a single listener is for all"
    assert Endpoints.of((a, b)).shares_address_with(Endpoints.one("h", 2, "X"))
    assert not Endpoints.of((a, b)).shares_address_with(Endpoints.of((c,)))
    with pytest.raises(ValueError, match="each name once"):
        Endpoints.of((a, a))
    with pytest.raises(ValueError, match="each name once"):
        Endpoints.of(())
    with pytest.raises(ValueError, match="expected one of A, B"):
        Endpoints.of((a, b), "C")
