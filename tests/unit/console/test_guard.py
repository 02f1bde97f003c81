"""Who may ask a console for what: hosts, origins, the token, --read-only; where it may listen."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from holdfast.console.guard import AccessRules, names_of
from holdfast.console.server import (
    ConsoleAsked,
    ConsoleRefused,
    is_loopback,
    listening,
    refuse_open_acts,
    settings_of,
    token_in,
    url_of,
)

RULES = AccessRules(port=8080, token="secret")
HOST = "127.0.0.1:8080"
COOKIE = f"a=b; {RULES.cookie_name}={RULES.cookie_value}"


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:8080", "[::1]:8080", "localhost", "LOCALHOST:8080"])
def test_a_console_knows_its_own_hosts(host: str) -> None:
    assert RULES.refusal("GET", "/", {"host": host}) is None


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example:8080",
        "127.0.0.1:80",
        "127.0.0.1:x",
        "10.0.0.1:8080",
        "127.0.0.1:8080@evil",
        "a/127.0.0.1",
    ],
)
def test_any_other_host_is_refused_whatever_is_asked(host: str | None) -> None:
    headers = {} if host is None else {"host": host, "cookie": COOKIE, "origin": f"http://{host}"}
    assert "Host" in (RULES.refusal("GET", "/", headers) or "")
    assert "Host" in (RULES.refusal("POST", "/act/move", headers) or "")


def test_a_console_on_every_address_takes_addresses_and_its_own_names() -> None:
    wide = AccessRules(port=80, token="", read_only=True, names=names_of("0.0.0.0", ("Me.Example",)), any_address=True)
    assert wide.is_host("10.1.2.3:80")
    assert wide.is_host("me.example")
    assert not wide.is_host("rebound.example:80")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_acts_need_an_origin_and_the_cookie(method: str) -> None:
    allowed = {"host": HOST, "origin": f"http://{HOST}", "cookie": COOKIE}
    assert RULES.refusal(method, "/act/move", allowed) is None
    for origin in ("http://evil.example", "null", "https://127.0.0.1:8080", "http://localhost:8080"):
        assert "Origin" in (RULES.refusal(method, "/act/move", {**allowed, "origin": origin}) or "")
    assert "Origin" in (RULES.refusal(method, "/act/move", {"host": HOST, "cookie": COOKIE}) or "")
    for cookie in ("", "a=b", f"{RULES.cookie_name}=secret", f"{RULES.cookie_name}=", "\x00;;=", COOKIE[:-1]):
        assert "token" in (RULES.refusal(method, "/act/move", {**allowed, "cookie": cookie}) or "")
    assert RULES.refusal(method, "/unlock", {"host": HOST, "origin": f"http://{HOST}"}) is None


def test_read_only_refuses_whoever_asks() -> None:
    rules = AccessRules(port=8080, token="secret", read_only=True)
    headers = {"host": HOST, "origin": f"http://{HOST}", "cookie": COOKIE}
    assert rules.refusal("GET", "/", headers) is None
    assert rules.refusal("POST", "/unlock", headers) == "this console is --read-only"
    assert not rules.may_act(COOKIE)


def test_the_token_is_what_the_file_says_and_the_cookie_does_not_tell_it() -> None:
    assert RULES.is_token(" secret\n")
    assert not RULES.is_token("")
    assert not RULES.is_token("sécret")
    assert "secret" not in RULES.cookie_value
    assert AccessRules(port=8081, token="secret").cookie_name != RULES.cookie_name
    assert AccessRules(port=8080, token="other").cookie_value != RULES.cookie_value


def test_a_token_is_made_once_and_only_the_user_reads_it(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    token = token_in(folder)
    path = folder / "console.token"
    assert len(token) >= 24
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    assert token_in(folder) == token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("")
    assert token_in(folder) not in ("", token)
    assert [each.name for each in folder.iterdir()] == ["console.token"]


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.5", "some.host", "::"])
def test_an_address_for_others_is_refused_unless_nothing_can_be_changed(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(ConsoleRefused, match=f"--host {host}: .*expected 127.0.0.1, or --read-only"):
        refuse_open_acts(host, read_only=False)
    refuse_open_acts(host, read_only=True)


def test_a_read_only_console_needs_no_token_and_writes_nothing(tmp_path: Path) -> None:
    with listening("127.0.0.1", 0) as listens:
        port = listens.getsockname()[1]
        assert url_of(listens) == f"http://127.0.0.1:{port}/"
        asked = ConsoleAsked(bootstrap=("b:1",), host="127.0.0.1", port=0, read_only=True, data_dir=tmp_path / "no")
        settings = settings_of(asked, listens)
        assert (settings.rules.port, settings.rules.read_only, settings.data_dir) == (port, True, None)
        assert not (tmp_path / "no").exists()
        with pytest.raises(ConsoleRefused, match=f"127.0.0.1:{port}: .*expected an address and a free port"):
            listening("127.0.0.1", port)
