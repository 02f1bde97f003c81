"""The table of APIs against Kafka's and kio's."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.protocol.apis import (
    INTERNAL,
    SPOKEN,
    ApiKey,
    VersionRange,
    advertised,
    is_flexible,
    is_spoken,
    request_header_version,
    request_type,
    response_header_version,
    response_type,
)

GOLDEN = Path(__file__).parents[2] / "golden/wire/4.3.0"
EVERY = [
    (key, version)
    for table in (SPOKEN, INTERNAL)
    for key, span in table.items()
    for version in range(span.min, span.max + 1)
]


@pytest.mark.parametrize(("key", "version"), EVERY, ids=lambda x: x.name if isinstance(x, ApiKey) else f"v{x}")
def test_every_version_has_its_classes(key: ApiKey, version: int) -> None:
    request, response = request_type(key, version), response_type(key, version)
    for kind in (request, response):
        assert (kind.__api_key__, kind.__version__) == (key, version)
        assert kind.__flexible__ == is_flexible(key, version)
    assert request.__header_schema__.__version__ == request_header_version(key, version)
    assert response.__header_schema__.__version__ == response_header_version(key, version)
    assert is_spoken(key, version)


def test_every_flexible_version_is_kios() -> None:
    for key in ApiKey:
        for version in range(20):
            try:
                kind = request_type(key, version)
            except KeyError:
                continue
            assert kind.__flexible__ == is_flexible(key, version), (key.name, version)


def test_ranges_are_not_wider_than_kafkas() -> None:
    recorded = json.loads((GOLDEN / "api_versions.json").read_text())[0]["response"]["api_keys"]
    kafka = {row["api_key"]: (row["min_version"], row["max_version"]) for row in recorded}
    for key, low, high in advertised():
        assert kafka[key][0] <= low <= high <= kafka[key][1], key.name
    assert [key for key, _, _ in advertised()] == sorted(SPOKEN)
    assert not set(INTERNAL) & set(kafka)


def test_produce_is_advertised_from_0_and_spoken_from_3() -> None:
    assert {key: low for key, low, _ in advertised()}[ApiKey.PRODUCE] == 0
    assert not is_spoken(ApiKey.PRODUCE, 2)


@pytest.mark.parametrize(("key", "version"), [(200, 0), (-1, 0), (0, 99), (1, 3), (3, -1), (4, 6), (58, 1)])
def test_what_is_not_spoken(key: int, version: int) -> None:
    assert not is_spoken(key, version)


@pytest.mark.parametrize(("key", "version"), [(200, 0), (0, 99), (4, 6)])
def test_a_version_without_a_class_is_a_key_error(key: int, version: int) -> None:
    with pytest.raises(KeyError):
        request_type(key, version)


def test_unknown_apis_are_not_flexible() -> None:
    assert not is_flexible(200, 5)
    assert response_header_version(ApiKey.API_VERSIONS, 4) == 0


def test_version_ranges_contain_their_ends() -> None:
    span = VersionRange(2, 4)
    assert [v in span for v in (1, 2, 4, 5, "3")] == [False, True, True, False, False]


def test_no_message_class_is_loaded_before_it_is_used() -> None:
    script = (
        "import sys, holdfast.protocol.framing, holdfast.protocol.fetch_codec, holdfast.protocol.produce_codec\n"
        "print(*[m for m in sys.modules if m.startswith('kio.schema.') and m.endswith(('.request', '.response'))])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == ""
