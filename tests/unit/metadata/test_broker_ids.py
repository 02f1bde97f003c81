"""The steps of KIP-426, one after the other, and what a store keeps for them."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.metadata.broker_ids import (
    Applicant,
    Awaited,
    HostEntry,
    KnownIds,
    Nameless,
    Outcome,
    SeveralMissing,
    Step,
    Taken,
    check_host,
    check_id,
    check_room,
    decode_host_node,
    encode_host_node,
    garbage,
    own_id,
    remember,
    take,
)
from holdfast.model.errors import ConfigError, InconsistentMetaPropertiesError

ME, ANOTHER = UUID(int=1), UUID(int=2)


def known(
    hosts: Mapping[str, HostEntry] | None = None,
    *,
    live: Collection[int] = (),
    used: Iterable[int] = (),
    sequence: int = 0,
) -> KnownIds:
    hosts, used = hosts or {}, set(used)
    ids = {*live, *used, *(entry.broker_id for entry in hosts.values())}
    return KnownIds(hosts=hosts, live=live, used=lambda: used, is_known=ids.__contains__, sequence=sequence)


def applicant(host: str = "h", **others: object) -> Applicant:
    return replace(Applicant(host=host, claimant=ME), **others)  # type: ignore[arg-type]


def entry(broker_id: int, claimant: UUID | None = None, address: str | None = None) -> HostEntry:
    return HostEntry(broker_id=broker_id, claimant=claimant, address=address)


# -- the broker's own business -----------------------------------------------------------------------------------------


def test_K426_01_the_configured_id_wins_and_must_agree_with_meta_properties() -> None:
    assert own_id(3, {}) == 3
    assert own_id(3, {"/d/meta.properties": 3, "/e/meta.properties": None}) == 3
    with pytest.raises(InconsistentMetaPropertiesError, match=r"/d/meta\.properties is of node 1, .*node\.id is 3"):
        own_id(3, {"/d/meta.properties": 1})


def test_K426_02_without_it_meta_properties_says_it() -> None:
    assert own_id(None, {"/d/meta.properties": 7}) == 7
    assert own_id(None, {"/d/meta.properties": None}) is None


def test_K426_18_one_log_directory_is_enough_and_two_must_agree() -> None:
    assert own_id(None, {"/d/meta.properties": None, "/e/meta.properties": 7}) == 7
    with pytest.raises(
        InconsistentMetaPropertiesError, match=r"/d/meta\.properties is of node 7, /e/meta\.properties is of node 8"
    ):
        own_id(None, {"/d/meta.properties": 7, "/e/meta.properties": 8})


# -- the host's id -----------------------------------------------------------------------------------------------------


def test_K426_04_a_host_has_the_id_that_it_has_had() -> None:
    found = take(known({"h": entry(10), "g": entry(11)}, live={11}, used={10, 11}), applicant())
    assert found == Taken(broker_id=10, step=Step.HOST)


def test_K426_05_when_that_is_alive_elsewhere_the_next_step_follows() -> None:
    there = known({"h": entry(10)}, live={10}, used={10, 12})
    assert take(there, applicant()) == Taken(broker_id=1001, step=Step.NEW, sequence=1)
    assert take(there, applicant(adopts=True)) == Taken(broker_id=12, step=Step.MISSING)


def test_K426_13_what_a_tool_has_written_counts() -> None:
    assert take(known({"new": entry(10)}), applicant("new")) == Taken(broker_id=10, step=Step.HOST)


# -- the missing one ---------------------------------------------------------------------------------------------------


def test_K426_06_exactly_one_missing_id_is_taken() -> None:
    renamed = known({"old": entry(2)}, live={1, 3}, used={1, 2, 3})
    assert take(renamed, applicant("new", adopts=True)) == Taken(broker_id=2, step=Step.MISSING)


def test_K426_07_of_several_missing_none_is_taken_and_no_new_one_is_made() -> None:
    there = known(live={1}, used={1, 2, 3}, sequence=5)
    assert take(there, applicant(adopts=True)) == SeveralMissing(missing=(2, 3))
    back = known(live={1, 2}, used={1, 2, 3}, sequence=5)
    assert take(back, applicant(adopts=True)) == Taken(broker_id=3, step=Step.MISSING)


def test_K426_08_with_none_missing_the_id_is_new() -> None:
    there = known(live={1, 2}, used={1, 2})
    assert take(there, applicant(adopts=True)) == Taken(broker_id=1001, step=Step.NEW, sequence=1)
    assert take(known(), applicant()) == Taken(broker_id=1001, step=Step.NEW, sequence=1)
    assert take(known(sequence=4), applicant(reserved_max=7)) == Taken(broker_id=12, step=Step.NEW, sequence=5)


def test_a_new_id_is_nobodys() -> None:
    """Somebody has configured 1001, and a host was given 1002 by hand."""
    there = known({"g": entry(1002)}, live={1001})
    assert take(there, applicant()) == Taken(broker_id=1003, step=Step.NEW, sequence=3)


def test_K426_11_missing_ids_are_looked_for_only_when_one_may_be_taken() -> None:
    reads: list[int] = []

    def used() -> set[int]:
        reads.append(1)
        return {1, 2}

    there = replace(known({"h": entry(9)}, live={1, 2}), used=used)
    take(there, applicant())
    take(there, applicant("other"))
    take(there, applicant("other", may_be_new=False, adopts=True))
    take(there, applicant(adopts=True))
    assert reads == []
    take(there, applicant("other", adopts=True))
    assert reads == [1]


def test_K426_15_a_missing_id_is_left_alone_unless_that_is_asked_for() -> None:
    """Another broker may only be restarting."""
    there = known(live={1}, used={1, 2})
    assert take(there, applicant()) == Taken(broker_id=1001, step=Step.NEW, sequence=1)


def test_with_a_log_directory_that_cannot_be_read_only_the_hosts_id_will_do() -> None:
    unread = applicant(may_be_new=False, adopts=True)
    assert take(known({"h": entry(10)}), unread) == Taken(broker_id=10, step=Step.HOST)
    assert take(known({"h": entry(10)}, live={10}, used={2}), unread) == Nameless()
    assert take(known(used={2}), unread) == Nameless()


# -- two at once -------------------------------------------------------------------------------------------------------


def test_K426_17_what_another_start_has_taken_is_waited_for() -> None:
    claimed = {"g": entry(2, ANOTHER)}
    there = known(claimed, live={1}, used={1, 2})
    assert take(there, applicant(adopts=True)) == Awaited(broker_id=2)
    assert take(replace(there, live={1, 2}), applicant(adopts=True)) == Taken(broker_id=1001, step=Step.NEW, sequence=1)
    assert take(there, applicant(adopts=True, insists=True)) == Taken(broker_id=2, step=Step.MISSING)
    assert take(known({"h": entry(2, ANOTHER)}), applicant()) == Awaited(broker_id=2)
    assert take(known({"h": entry(2), "g": entry(2, ANOTHER)}), applicant()) == Awaited(broker_id=2)


def test_the_same_start_that_asks_again_gets_the_same_id() -> None:
    """The answer was lost."""
    assert take(known({"h": entry(2, ME)}), applicant()) == Taken(broker_id=2, step=Step.HOST)


def test_one_that_starts_again_at_its_address_need_not_wait_for_itself() -> None:
    killed = known({"h": entry(2, ANOTHER, "127.0.0.1:9092")})
    assert take(killed, applicant(address="127.0.0.1:9092")) == Taken(broker_id=2, step=Step.HOST)
    assert take(killed, applicant(address="127.0.0.1:9093")) == Awaited(broker_id=2)
    assert take(known({"g": entry(2, ANOTHER, "a:1"), "h": entry(2)}), applicant(address="a:1")) == Awaited(broker_id=2)


@dataclass
class Store:
    """A store as the protocol has it: one decision after the other, kept before it is told."""

    hosts: dict[str, HostEntry] = field(default_factory=dict)
    live: dict[int, UUID] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)
    sequence: int = 0

    def take(self, who: Applicant) -> Outcome:
        found = take(known(self.hosts, live=set(self.live), used=self.used, sequence=self.sequence), who)
        if isinstance(found, Taken):
            self.hosts[who.host] = HostEntry(broker_id=found.broker_id, claimant=who.claimant)
            self.sequence = max(self.sequence, found.sequence or 0)
        return found

    def register(self, who: Applicant, broker_id: int) -> None:
        kept, going = remember(self.hosts, who.host, broker_id)
        assert kept is None or self.hosts[who.host].broker_id != broker_id
        self.hosts[who.host] = HostEntry(broker_id=broker_id)
        for host in going:
            del self.hosts[host]
        self.live[broker_id] = who.claimant


@given(
    hosts=st.lists(st.sampled_from("abc"), min_size=2, max_size=6),
    adopts=st.booleans(),
    missing=st.sets(st.integers(1, 9), max_size=2),
    turns=st.lists(st.integers(0, 5), min_size=1, max_size=60),
)
def test_K426_17_no_two_starts_have_one_id_whatever_comes_first(
    hosts: list[str], adopts: bool, missing: set[int], turns: list[int]
) -> None:
    """Brokers without ids, some of them on one host, ask and register in any order; who is told to wait asks again."""
    store = Store(used=set(missing))
    starts = [Applicant(host=host, claimant=UUID(int=n + 1), adopts=adopts) for n, host in enumerate(hosts)]
    given_ids: dict[UUID, int] = {}
    for turn in turns:
        who = starts[turn % len(starts)]
        if who.claimant in given_ids:
            if given_ids[who.claimant] not in store.live:
                store.register(who, given_ids[who.claimant])
            continue
        found = store.take(who)
        if isinstance(found, Taken):
            assert found.broker_id not in given_ids.values()
            given_ids[who.claimant] = found.broker_id
        elif isinstance(found, Awaited):
            assert found.broker_id in given_ids.values()
        else:
            assert isinstance(found, SeveralMissing)
            assert len(missing) == 2
            assert store.sequence == 0


# -- what is kept ------------------------------------------------------------------------------------------------------


def test_K426_09_a_host_is_remembered_with_this_text() -> None:
    assert encode_host_node(10) == b'{"version":0,"broker.id":10}'
    assert remember({}, "h", 10) == (entry(10), ())
    assert remember({"h": entry(10)}, "h", 10) == (None, ())
    assert remember({"h": entry(9)}, "h", 10) == (entry(10), ())


def test_K426_10_a_later_version_with_more_in_it_is_read() -> None:
    assert decode_host_node(b'{"version":1,"broker.id":10,"x":1}') == 10
    assert decode_host_node(json.dumps({"broker.id": 0, "version": 0}, indent=1).encode()) == 0


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"10", b"{}", b'{"version":0}', b'{"version":0,"broker.id":"10"}', b'{"version":0,"broker.id":-1}',
     b'{"version":0,"broker.id":true}', b'{"version":-1,"broker.id":1}', b"\xff\xfe", b'{"version":0,"broker.id":1e3}'],
)  # fmt: skip
def test_what_is_no_host_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"broker|line|decode|utf"):
        decode_host_node(text)


def test_K426_12_what_another_host_has_of_a_live_brokers_id_is_garbage() -> None:
    hosts = {"old": entry(10), "new": entry(10), "gone": entry(11), "h": entry(12), "silent": entry(13)}
    assert garbage(hosts, {10: "new", 12: "h"}) == ("old",)
    assert garbage(hosts, {}) == ()
    assert remember(hosts, "new", 10) == (None, ("old",))
    assert remember(hosts, "newer", 10) == (entry(10), ("new", "old"))


@pytest.mark.parametrize("name", ["", " h", "h ", "a\nb", "x" * 1025, "\u00e9" * 600])
def test_what_cannot_be_a_host_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="expected a name of 1 to 1024 bytes"):
        check_host(name)


def test_hosts_are_not_kept_without_end() -> None:
    hosts = {str(n): entry(n) for n in range(10_000)}
    check_room(hosts, "9")
    with pytest.raises(ConfigError, match="host x: 10000 hosts have broker ids already: expected 10000 at most"):
        check_room(hosts, "x")


def test_what_can_be_a_host_and_an_id() -> None:
    assert check_host("/var/lib/disk 1") == "/var/lib/disk 1"
    assert check_id(0) == 0
    for number in (-1, 2**31):
        with pytest.raises(ConfigError, match="expected 0 to 2147483647"):
            check_id(number)
