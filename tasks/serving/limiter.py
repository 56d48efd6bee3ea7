"""Find out how many requests at once a server answers best; no network, and the clock is handed in.

Answers per second decide: the limit grows while a step brings enough. Where it brings too little, twice in a row since
rounds are noisy, it goes back, and the next step, a smaller one, comes after a pause that doubles each time. A server
that is full or late halves it, once for all requests that were under way together. Rounds in which there was too little
to ask say nothing of the server and are left out.
"""

from collections.abc import Callable

FAST, SLOW = 2.0, 1.5
"""By how much a step raises the limit: until the first one in vain, and afterwards."""
GAIN = 0.2
"""A step must bring this share of what it would bring on a server that is far from full."""
PAUSE, LONGEST_PAUSE = 4, 64
"""Rounds until the next step is tried."""
LEAST = 4
"""Answers that a round measures at least."""


class Limiter:
    """Adaptive limit of the requests under way at one endpoint."""

    def __init__(self, most: int, start: int, clock: Callable[[], float]) -> None:
        self.limit = self._good = min(start, most)
        self.under_way = 0
        """Counted by who asks."""
        self.wave = 0
        """Of requests that begin now."""
        self._most, self._clock = most, clock
        self._rate, self._factor = 0.0, FAST
        self._misses, self._waits, self._pause = 0, 0, PAUSE
        self._begin_round(skip=self.limit)

    def answered(self) -> None:
        """Learn from a request that was answered and is still counted in ``under_way``."""
        was_full = self.under_way >= self.limit
        if not was_full or self._skip:
            self._begin_round(skip=self._skip - was_full)
            return
        self._count += 1
        if self._count >= max(self.limit, LEAST) * (1 if self._factor == FAST else 2):
            self._learn(self._count / max(self._clock() - self._since, 1e-9))

    def overloaded(self, wave: int) -> None:
        """Learn from a request that was too much for the server; those of one wave count once."""
        together = min(self.limit, self.under_way)
        if wave == self.wave and together > 1:  # one that was alone could not have had less company
            self.wave += 1
            self._rest(together // 2)

    def _learn(self, rate: float) -> None:
        if self._waits or self.limit == self._good == self._most:
            self._waits = max(0, self._waits - 1)
        elif self.limit == self._good or rate >= self._rate * (1 + GAIN * (self.limit / self._good - 1)):
            self._good, self._rate, self._misses = self.limit, rate, 0
            self.limit = min(self._most, max(self.limit + 1, int(self.limit * self._factor)))
        elif self._misses:
            self._rest(self._good)
            return
        else:
            self._misses = 1
        self._begin_round(skip=self._good if self.limit > self._good and not self._misses else 0)

    def _rest(self, limit: int) -> None:
        """Go back to a limit and stay there for some rounds."""
        self.limit = self._good = limit
        self._factor, self._misses, self._waits = SLOW, 0, self._pause - 1
        self._pause = min(LONGEST_PAUSE, 2 * self._pause)
        self._begin_round(skip=self.under_way - 1)

    def _begin_round(self, *, skip: int) -> None:
        """Measure anew after so many more answers, which began under another limit."""
        self._skip, self._count, self._since = skip, 0, self._clock()
