"""Numbers and times as a person reads them; what Jinja calls filters. Pure."""

from holdfast.client.words import words_of_bytes, words_of_moment

UNKNOWN = "–"
GOOD = frozenset(("online", "Stable", "Empty"))
BAD = frozenset(("offline", "silent", "away", "Dead"))


def bytes_words(count: float | None) -> str:
    """1.5 GiB."""
    return UNKNOWN if count is None else words_of_bytes(count)


def count_words(count: float | None) -> str:
    """12,345; a rate below ten with its tenth."""
    if count is None:
        return UNKNOWN
    return f"{count:,.1f}" if isinstance(count, float) and 0 < abs(count) < 10 else f"{round(count):,}"


def moment_words(ms: int | None) -> str:
    """2026-11-22 10:00:00, UTC."""
    return UNKNOWN if ms is None else words_of_moment(ms)


def age_words(seconds: float) -> str:
    """3 s, 5 min, 2 h, 4 d."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def state_class(state: str) -> str:
    """How a state looks."""
    return "good" if state in GOOD else "bad" if state in BAD else "warn"
