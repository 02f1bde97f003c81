"""What browsers load that is not ours is what its makers published, and its licences are there."""

from __future__ import annotations

import hashlib
from importlib.resources import files

HASHES = {
    "htmx-4.0.1.min.js": "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130",
    "hx-sse-4.0.1.min.js": "18ef2761356ec1fe0bb6d92612315b37517a7c1e9856b661c5ae81fef239d103",
    "uplot-1.6.32.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uplot-1.6.32.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "htmx-4.0.1.LICENSE": "d3d2456f76414f2456104660ebd65aff1c04cd7966b942bdabd63f3cdb316a38",
    "uplot-1.6.32.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
LICENCE_OF = {"htmx": "htmx-4.0.1.LICENSE", "hx-sse": "htmx-4.0.1.LICENSE", "uplot": "uplot-1.6.32.LICENSE"}
FOLDER = files("holdfast.console") / "static" / "vendored"


def test_vendored_files_are_those_that_were_published() -> None:
    found = {
        each.name: hashlib.sha256(each.read_bytes()).hexdigest()
        for each in FOLDER.iterdir()
        if each.name != "README.md"
    }
    assert found == HASHES


def test_every_vendored_file_has_its_licence_and_is_small() -> None:
    names = [each.name for each in FOLDER.iterdir() if each.name.endswith((".js", ".css"))]
    for name in names:
        product = name.rsplit("-", 1)[0]
        assert (FOLDER / LICENCE_OF[product]).read_bytes(), name
    assert sum(len((FOLDER / name).read_bytes()) for name in names) < 100_000
