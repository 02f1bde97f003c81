"""Numbers and times as a person reads them; what Jinja calls filters. Pure."""

from datetime import UTC, datetime

UNKNOWN = "–"
GOOD = frozenset(("online", "Stable", "Empty"))
BAD = frozenset(("offline", "silent", "away", "Dead"))


def bytes_words(count: float | None) -> str:
    """1.5 GiB."""
    if count is None:
        return UNKNOWN
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):  # noqa: B007 - the unit that it ends at
        if abs(value) < 1024:
            break
        value /= 1024
    return f"{int(value)} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def count_words(count: float | None) -> str:
    """12,345; a rate below ten with its tenth."""
    if count is None:
        return UNKNOWN
    return f"{count:,.1f}" if isinstance(count, float) and 0 < abs(count) < 10 else f"{round(count):,}"


def moment_words(ms: int | None) -> str:
    """2026-11-22 10:00:00, UTC."""
    if ms is None:
        return UNKNOWN
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):  # a record may claim any time
        return f"{ms} ms"


def age_words(seconds: float) -> str:
    """3 s, 5 min, 2 h, 4 d."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def state_class(state: str) -> str:
    """How a state looks."""
    return "good" if state in GOOD else "bad" if state in BAD else "warn"
