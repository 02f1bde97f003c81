"""Makes an input that does something wrong smaller, as long as it still does the same."""

from collections.abc import Callable

TRIES = 3000


def shrunk(data: bytes, same: Callable[[bytes], bool], keep: int = 0) -> bytes:
    """``data`` with pieces left out and bytes zeroed, while ``same`` holds. ``keep`` bytes at its start stay."""
    tries = TRIES
    size = max(1, (len(data) - keep) // 2)
    while size and tries > 0:
        at, changed = keep, False
        while at < len(data) and tries > 0:
            tries -= 1
            shorter = data[:at] + data[at + size :]
            if same(shorter):
                data, changed = shorter, True
            else:
                at += size
        if not changed:
            size //= 2
    for at in range(keep, len(data)):
        if data[at] and tries > 0:
            tries -= 1
            plainer = data[:at] + b"\0" + data[at + 1 :]
            if same(plainer):
                data = plainer
    return data
