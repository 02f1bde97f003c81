"""The memory and the file of acts, forms, and the shell's lines that do the same."""

from __future__ import annotations

import asyncio
import json
import shlex
import socket
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.client.disks import last_copies
from holdfast.console.act_pages import with_first_choices
from holdfast.console.acts import LOG_NAME, MOST_KEPT, ActLog, ActRefused, command, number
from holdfast.console.app import make_app
from holdfast.console.disk_acts import HealDirectory, MoveReplicas, replicas_named
from holdfast.console.group_acts import time_of_text
from holdfast.console.host import ConsoleHost
from holdfast.console.replica_acts import with_plan
from holdfast.model.types import TopicPartition
from tests.unit.console.asking import ORIGIN, answer_of, console
from tests.unit.console.snapshots import disk, snapshot, topic

ACT = HealDirectory("b:1")


def done(log: ActLog, once: str, error: str | None = None) -> int:
    assert log.begin(once) is None
    form = {"path": "/disks/<b>\n", "once": once, "confirm": "x"}
    return log.end(once, ACT, form, 1_700_000_000_000, ["holdfast x"], ["it is online"], error, "127.0.0.1").number


def test_an_act_that_is_cut_before_it_is_done_may_be_sent_again(tmp_path: Path) -> None:
    """Its user has logged out while the brokers were asked for its plan."""

    async def cut(silent: socket.socket) -> ConsoleHost:
        host = console(tmp_path, now=snapshot(topics=[topic("t")], alive=()))
        host.settings = replace(host.settings, bootstrap=(f"127.0.0.1:{silent.getsockname()[1]}",))
        headers = {"origin": ORIGIN, "cookie": f"{host.rules.cookie_name}={host.rules.cookie_value}"}
        form = b"once=1&topic=t&confirm=t"
        sending = asyncio.ensure_future(answer_of(make_app(host), "POST", "/act/delete-topic", headers, {}, form))
        connection, _ = await asyncio.get_running_loop().sock_accept(silent)
        with connection, pytest.raises(ActRefused, match="it is being done"):
            host.log.begin("1")
        sending.cancel()
        assert isinstance((await asyncio.gather(sending, return_exceptions=True))[0], asyncio.CancelledError)
        return host

    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        assert asyncio.run(cut(silent)).log.begin("1") is None
    assert not (tmp_path / LOG_NAME).exists()


def test_every_act_is_one_line_of_a_file_of_the_users(tmp_path: Path) -> None:
    path = tmp_path / "acts.log"
    log = ActLog(path)
    done(log, "a")
    done(log, "b", "the broker refused")
    first, second = map(json.loads, path.read_text().splitlines())
    assert first == {
        "at_ms": 1_700_000_000_000,
        "act": "online",
        "from": "127.0.0.1",
        "asked": {"path": "/disks/<b>\n"},
        "commands": ["holdfast x"],
        "done": ["it is online"],
        "error": None,
    }
    assert second["error"] == "the broker refused"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_form_that_is_sent_twice_is_done_once() -> None:
    log = ActLog(None)
    assert log.begin("a") is None
    with pytest.raises(ActRefused, match="sent twice"):
        log.begin("a")
    log.give_up("a")
    number_of_a = done(log, "a")
    again = log.begin("a")
    assert again is not None
    assert again.number == number_of_a
    found = log.numbered(number_of_a)
    assert found is not None
    assert found.once == "a"


def test_the_last_acts_are_kept() -> None:
    log = ActLog(None)
    for n in range(MOST_KEPT + 5):
        done(log, str(n))
    assert len(log.outcomes()) == MOST_KEPT
    assert log.outcomes()[0].once == str(MOST_KEPT + 4)
    assert log.numbered(1) is None


def test_a_command_is_quoted_and_a_name_that_looks_like_an_option_is_none() -> None:
    line = command("b:1", "topics", "delete", names=["--all; rm"])
    assert shlex.split(line) == ["holdfast", "topics", "delete", "--bootstrap-server", "b:1", "--", "--all; rm"]
    assert command("b:1", "topics", "delete", names=["t"]) == "holdfast topics delete --bootstrap-server b:1 t"
    line = with_plan("holdfast reassign execute", {TopicPartition("it's", 0): (1, 2)})
    assert json.loads(shlex.split(line)[-1])["partitions"] == [{"topic": "it's", "partition": 0, "replicas": [1, 2]}]


def test_what_is_typed_is_refused_with_its_name() -> None:
    assert replicas_named(" a-0\nb-c-12 a-0") == [TopicPartition("a", 0), TopicPartition("b-c", 12)]
    for text in ("a", "-1", "a-x", "a-²"):
        with pytest.raises(ActRefused, match="expected TOPIC-PARTITION"):
            replicas_named(text)
    assert number({"n": "-5"}, "n", "records", low=-10) == -5
    for text in ("", "x", "1.5", "99999999999", "²", "--5"):
        with pytest.raises(ActRefused, match="expected"):
            number({"n": text}, "n", "records")
    assert time_of_text("2023-11-14T22:13:20") == time_of_text("2023-11-14T23:13:20+01:00") == 1_700_000_000_000
    with pytest.raises(ActRefused, match="time 'soon': expected"):
        time_of_text("soon")


def test_a_choice_that_nobody_made_is_the_first_and_one_that_was_made_stays() -> None:
    now = snapshot(disks={1: [disk("/a"), disk("/b")], 2: [disk("/c")]})
    act = MoveReplicas("b:1")
    assert with_first_choices(act, now, {"broker": "1", "source": "/a"})["target"] == "/b"
    assert with_first_choices(act, now, {"broker": "1", "source": "/a", "target": "/gone"})["target"] == "/gone"
    assert with_first_choices(act, now, {})["broker"] == "1"


def test_a_last_copy_is_what_nobody_else_has_in_sync() -> None:
    held = disk("/d", replicas=[("alone", 0), ("shared", 0), ("behind", 0), ("gone", 0)], future=[("coming", 0)])
    view = snapshot(
        topics=[
            topic("alone", (1, (1,), (1,))),
            topic("shared", (2, (1, 2), (1, 2))),
            topic("behind", (1, (1, 2), (1,))),
            topic("coming", (1, (1,), (1,))),
        ]
    ).view
    assert last_copies(1, held, view) == [TopicPartition("alone", 0), TopicPartition("behind", 0)]
