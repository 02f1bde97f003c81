"""Values of a schema registry on the pages of a console that ``up`` started."""

from __future__ import annotations

import json

import pytest

from holdfast.testing import Cluster, wait_for
from tests.system.console_pages import ConsolePages
from tests.unit.console.test_registered_values import PERSON, avro, framed
from tests.unit.registry.registry_server import serving

pytestmark = pytest.mark.system


def test_records_are_shown_by_the_schemas_of_a_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as registry:
        registry.register(1, "person", json.dumps(PERSON))
        monkeypatch.setenv("HOLDFAST_SCHEMA_REGISTRY", registry.url)
        with Cluster(brokers=1, log_dirs=1, console=True) as cluster:
            cluster.create_topic("people", replication_factor=1)
            values = [framed(1, avro(PERSON, value={"name": "<b>Ada</b>"})), framed(2, b"?")]
            cluster.produce("people", values, partition=0)
            pages = ConsolePages(cluster.console_url)
            wait_for(lambda: pages.get("/messages", topic="people").status == 200, "the topic to be known")
            text = pages.get("/messages", topic="people").text
            assert "&#34;name&#34;: &#34;&lt;b&gt;Ada&lt;/b&gt;&#34;" in text
            assert "schema 2: the registry has no such schema" in text
            one = pages.get("/message", topic="people", partition=0, offset=0)
            assert "avro, schema 1" in one.text
            assert (
                "00000000  00 00 00 00 01"
                in pages.get("/message", topic="people", partition=0, offset=0, form="hex").text
            )
