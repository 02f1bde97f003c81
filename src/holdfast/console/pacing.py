"""How long to wait between two looks at a cluster. Pure.

    nobody looks            a minute: an idle console costs next to nothing
    a page is open          half a second, or longer: a look may cost a tenth of a core, and take half of the time; one
                            begins every ten seconds if it can
    the last look failed    as with a page open; every look that fails in a row doubles it, up to ten seconds

So a page hears of a dead disk within two seconds, also from brokers that are busy. Every look after five seconds with a
page open is a full one, after ten where those take long, and so is every look while nobody looks.
"""

from typing import Final

IDLE_S: Final = 60.0
OPEN_S: Final = 0.5
LONGEST_OPEN_S: Final = 10.0
SHARE: Final = 10.0
FULL_EVERY_S: Final = 5.0
FAILED_LONGEST_S: Final = 10.0


def pause_s(*, looked_at: bool, took_s: float, cpu_s: float, failures: int) -> float:
    """Seconds from the end of a look to the next one; it took ``took_s``, of which the console itself ``cpu_s``."""
    if failures:
        return min(FAILED_LONGEST_S, OPEN_S * 2 ** min(failures - 1, 8)) if looked_at else FAILED_LONGEST_S
    if not looked_at:
        return IDLE_S
    return max(OPEN_S, took_s, min(SHARE * cpu_s, LONGEST_OPEN_S - took_s))


def is_full(*, looked_at: bool, since_full_s: float | None, full_took_s: float) -> bool:
    """Whether the next look asks everything; ``since_full_s``: since the last that did, None if there was none."""
    if since_full_s is None or not looked_at:
        return True
    return since_full_s >= min(LONGEST_OPEN_S, max(FULL_EVERY_S, SHARE * full_took_s))
