"""When is something that happens again and again told of? Pure rules on times."""

from __future__ import annotations


class Repeats:
    """Lets the first through at once, then fewer and fewer while it goes on.

    After one that was told the others are held back for ``first_s``, and for twice as
    long after each further one, up to ``longest_s``. When nothing has happened for
    ``longest_s``, it begins anew.

    Attributes:
        held_back: how many were not told since the last that was.
    """

    def __init__(self, first_s: float, longest_s: float) -> None:
        """Nothing has happened yet; times are in seconds of one clock."""
        self.held_back = 0
        self._first_s = first_s
        self._longest_s = longest_s
        self._hold_s = first_s
        self._until_s = float("-inf")
        self._last_s = float("-inf")

    def happens(self, now_s: float) -> bool:
        """Note that it happens; return whether to tell of it."""
        is_new = now_s - self._last_s >= self._longest_s
        self._last_s = now_s
        if now_s < self._until_s and not is_new:
            self.held_back += 1
            return False
        self._hold_s = (
            self._first_s if is_new else min(2 * self._hold_s, self._longest_s)
        )
        self._until_s = now_s + self._hold_s
        return True

    def others(self) -> str:
        """Return what to add to a text of those that were held back; forget them."""
        held_back, self.held_back = self.held_back, 0
        return f" (and {held_back:,} more since the last)" if held_back else ""
