"""A browser for the tests of pages, beside the fixtures of all tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

    from holdfast.testing import Cluster


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    from tests import browsers  # only where a page is looked at

    with browsers.browser() as running:
        yield running


@pytest.fixture
def context(chromium: Browser, cluster: Cluster) -> Iterator[BrowserContext]:
    """Of the console of the file's ``cluster``."""
    from tests.system.console_clicks import context_of

    with context_of(chromium, cluster.console_url) as found:
        yield found


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    from tests.system.console_clicks import tab_of

    with tab_of(context) as found:
        yield found
