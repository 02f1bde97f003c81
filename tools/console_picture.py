"""Takes docs/console.png: the disks page of a real cluster of which one disk has died. Needs root and a browser.

python -m tools.console_picture
"""

from pathlib import Path

from playwright.sync_api import expect

from holdfast.testing import Cluster
from holdfast.testing.disks import EioDisk
from tests.browsers import browser

PICTURE = Path(__file__).parent.parent / "docs" / "console.png"
SIZE = {"width": 1240, "height": 980}
PATIENCE_MS = 30_000


def main() -> None:
    """Three brokers with two directories; the second of broker 2 answers EIO under writes."""
    with Cluster(brokers=3, log_dirs=2, disks={(2, 2): EioDisk}, console=True) as cluster, browser() as chromium:
        for name, partitions in (("orders", 12), ("payments", 6), ("clicks", 24)):
            cluster.create_topic(name, partitions=partitions)
            cluster.produce(name, [(b"key-%d" % n, b'{"n": %d}' % n) for n in range(20_000)])
        page = chromium.new_page(viewport=SIZE, device_scale_factor=1)  # type: ignore[arg-type]
        page.goto(cluster.console_url)
        cluster.disks[2, 2].fail()
        cluster.produce("orders", [b'{"n": %d}' % n for n in range(2_000)])
        expect(page.locator(".tile .badge.bad")).to_have_text("offline", timeout=PATIENCE_MS)
        expect(page.locator(".findings")).to_be_visible()
        page.screenshot(path=str(PICTURE))
    print(PICTURE)


if __name__ == "__main__":
    main()
