"""A console where one logs in, in a real browser: what `up --secure` starts."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Page, expect

from holdfast.client.sasl_options import parse_jaas
from holdfast.testing import Cluster
from tests.system.console_clicks import SOON_MS, do, planned, tab_of

pytestmark = [pytest.mark.system, pytest.mark.embedded_store("users of its own")]


LOGIN = re.compile("/login$")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, log_dirs=2, secure=True, console=True) as running:
        running.create_topic("orders", partitions=2)
        yield running


def login_of(cluster: Cluster, name: str) -> tuple[str, str]:
    """User and password, as the cluster wrote them down."""
    _, options = parse_jaas(cluster.properties(name)["sasl.jaas.config"])
    return options["username"], options["password"]


def log_in(page: Page, user: str, password: str) -> None:
    """By the keyboard alone: the field of the user has the focus."""
    page.goto("/login")
    expect(page.get_by_label("User")).to_be_focused()
    page.keyboard.type(user)
    page.keyboard.press("Tab")
    page.keyboard.type(password)
    page.keyboard.press("Enter")


def test_nobody_sees_anything_before_a_login(cluster: Cluster, page: Page) -> None:
    for path in ("/", "/topics", "/brokers", "/act/delete-topic?topic=orders"):
        page.goto(path)
        expect(page).to_have_url(LOGIN)
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        assert "orders" not in page.content()
    found = Axe().run(page).response["violations"]
    assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == []


def test_a_wrong_password_and_an_unknown_user_are_refused_alike(cluster: Cluster, page: Page) -> None:
    user, _ = login_of(cluster, "admin")
    told = []
    for name in (user, "nobody of this name"):
        log_in(page, name, "a guess")
        expect(page.get_by_role("alert")).to_be_visible()
        told.append(page.get_by_role("alert").inner_text())
        assert page.get_by_label("User").input_value() == name, "what was typed is kept"
        assert page.get_by_label("Password").input_value() == "", "and the password is not"
    assert told == ["the brokers do not take this user and password"] * 2
    page.goto("/topics")
    expect(page).to_have_url(LOGIN)


def test_the_administrator_acts_and_the_pages_follow(cluster: Cluster, page: Page, context: BrowserContext) -> None:
    log_in(page, *login_of(cluster, "admin"))
    expect(page.locator("header")).to_contain_text("admin")
    page.goto("/topics")
    expect(page.locator("main")).to_contain_text("orders")
    with tab_of(context) as other:
        other.goto("/act/create-topic")
        planned(other, topic="made-by-hand", partitions="1")
        do(other, "Make it")
    expect(page.locator("main")).to_contain_text("made-by-hand", timeout=SOON_MS)


def test_another_user_is_told_what_it_may_not_do(cluster: Cluster, page: Page) -> None:
    log_in(page, *login_of(cluster, "client"))
    expect(page.locator("header")).to_contain_text("client")
    page.goto("/act/config?kind=topic&of=orders&key=retention.ms&way=set&value=1000&plan=1")
    expect(page.locator("main")).to_contain_text("It cannot be done: topic orders: Topic authorization failed")
    expect(page.get_by_role("button", name="Change it", exact=True)).to_have_count(0)


def test_after_logging_out_no_tab_shows_anything(cluster: Cluster, page: Page, context: BrowserContext) -> None:
    log_in(page, *login_of(cluster, "admin"))
    expect(page.locator("header")).to_contain_text("admin")
    with tab_of(context) as other, tab_of(context) as following:
        other.goto("/topics")
        expect(other.locator("main")).to_contain_text("orders")
        following.goto("/messages?topic=orders")
        following.get_by_role("button", name="Follow what is written").click()
        expect(following.locator("#progress")).to_have_text("waiting for records")
        page.get_by_role("button", name="Log out").click()
        expect(page).to_have_url(LOGIN)
        expect(other).to_have_url(LOGIN)
        expect(following).to_have_url(LOGIN)
        # And after another login pages follow the cluster again.
        log_in(page, *login_of(cluster, "admin"))
        expect(page.locator("header")).to_contain_text("admin")
        page.goto("/topics")
        cluster.create_topic("made-after-the-login")
        expect(page.locator("main")).to_contain_text("made-after-the-login", timeout=SOON_MS)
        page.get_by_role("button", name="Log out").click()
        expect(page).to_have_url(LOGIN)
    page.go_back()
    expect(page).to_have_url(LOGIN)
    expect(page.locator("main")).not_to_contain_text("orders")
