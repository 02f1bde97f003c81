"""Numbers and times as a person reads them, for commands and pages. Pure."""

from datetime import UTC, datetime


def words_of_bytes(count: float) -> str:
    """1.5 GiB."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):  # noqa: B007 - the unit that it ends at
        if abs(value) < 1024:
            break
        value /= 1024
    return f"{int(value)} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def words_of_moment(ms: int) -> str:
    """2026-11-22 10:00:00, UTC, of milliseconds since 1970; ``N ms`` of what no calendar has."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):  # a record may claim any time
        return f"{ms} ms"
