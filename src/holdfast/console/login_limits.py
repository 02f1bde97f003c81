"""How often a login may be tried, and when one that failed is answered. Pure: time is the caller's.

    tried: what it costs is owed        the password is right: it is not owed any more
                                        it is wrong: the answer waits until what was owed then is paid off

Seconds are owed by the address, by the name of the user and by all together, and pass by themselves: so guesses come no
faster than the costs allow, however many guess at once. Those who guess wait; who knows a password waits for none of
them, unless so much is owed that nothing is tried.
"""

from typing import Final

FAILED_S: Final = 0.5
"""An answer to a wrong password comes no sooner."""
OF_ADDRESS: Final = (0.2, 12.8)
"""Seconds that one costs, and the most that may be owed: five a second, 64 at once."""
OF_USER: Final = (0.2, 11.2)
"""56 at once: who guesses at one user leaves a place to the others of the same address, which behind a proxy is
everybody's."""
OF_ALL: Final = (0.1, 12.8)
FORGET_AT: Final = 1000
"""Names and addresses in memory; those that owe something are fewer."""
_SLACK_S: Final = 1e-6
"""Sums of tenths are not exact."""


class LoginLimits:
    """What is owed. ``admit`` before a password is asked about, ``forgive`` when it was none that is wrong."""

    def __init__(self) -> None:
        self._paid_s: dict[tuple[str, str], float] = {}
        """When nothing is owed any more."""

    def __len__(self) -> int:
        return len(self._paid_s)

    def admit(self, address: str, user: str, now_s: float) -> float | None:
        """When a failure is answered; None: it must not be tried now."""
        debts = _debts(address, user)
        paid_s = {key: max(self._paid_s.get(key, now_s), now_s) + cost for key, (cost, _) in debts.items()}
        if any(paid_s[key] - now_s > most + _SLACK_S for key, (_, most) in debts.items()):
            return None
        if len(self._paid_s) >= FORGET_AT:
            self._paid_s = {key: at_s for key, at_s in self._paid_s.items() if at_s > now_s}
        self._paid_s |= paid_s
        return max(now_s + FAILED_S, *paid_s.values())

    def forgive(self, address: str, user: str) -> None:
        """It was no guess."""
        for key, (cost, _) in _debts(address, user).items():
            if key in self._paid_s:
                self._paid_s[key] -= cost


def _debts(address: str, user: str) -> dict[tuple[str, str], tuple[float, float]]:
    return {("address", address): OF_ADDRESS, ("user", user): OF_USER, ("all", ""): OF_ALL}
