"""Find out how many requests at once a server answers best. Pure: no network, and the clock is handed in.

A server that batches answers more in a second, the more it is asked at once, until it is full; from there on answers
only come later. So the limit goes up step by step, and answers per second decide whether it stays there: in a round, a
generation of answers goes by unmeasured (they began under the old limit), the next is timed. While a step brings
enough, another follows at once. Where it brings nothing, twice in a row since rounds are noisy, the limit goes back and
the next step, a smaller one, is tried some rounds later; each step in vain doubles that pause.

A server may also say that it is full, or not answer in time: then the limit is halved, once for all requests that were
under way together, and comes near that place again soon, but beyond it only after such a pause.

Rounds in which there was nothing to ask say nothing of the server and are left out.
"""

import math
from collections.abc import Callable

FAST, SLOW = 2.0, 1.5
"""By how much a step raises the limit: until the first one in vain, and afterwards."""
GAIN = 0.2
"""A step must bring this share of what it would bring on a server that is far from full."""
NEAR = 0.9
"""How near the limit comes to where the server was full."""
PAUSE, LONGEST_PAUSE = 4, 64
"""Rounds until the next step is tried."""
LEAST = 4
"""Answers that a round measures at least."""


class Limiter:
    """Count the requests under way at one endpoint, and say how many there may be."""

    def __init__(self, most: int, start: int, clock: Callable[[], float]) -> None:
        """Start small; there are never more than ``most``."""
        self.limit = self._good = min(start, most)
        self.under_way = 0
        self._most = most
        self._clock = clock
        self._wave = 0
        self._full = math.inf
        """How many requests were once too many."""
        self._rate = 0.0
        """Answers per second under the good limit."""
        self._factor = FAST
        self._misses = 0
        self._pause = 0
        self._pauses = PAUSE
        self._begin_round(skip=self.limit)

    @property
    def is_free(self) -> bool:
        """Say whether one more may begin."""
        return self.under_way < self.limit

    def begin(self) -> int:
        """Count a request that begins; return its wave, for ``overloaded``."""
        self.under_way += 1
        return self._wave

    def left(self) -> None:
        """Count a request that ended without saying anything of the server."""
        self.under_way -= 1

    def answered(self) -> None:
        """Count a request that was answered, and learn from it."""
        was_full = self.under_way >= self.limit
        self.under_way -= 1
        if not was_full:
            self._begin_round(skip=self._skip)
        elif self._skip:
            self._begin_round(skip=self._skip - 1)
        else:
            self._count += 1
            if self._count >= max(self.limit, LEAST) * (1 if self._factor == FAST else 2):
                self._learn(self._count / max(self._clock() - self._since, 1e-9))

    def overloaded(self, wave: int) -> None:
        """Count a request that was too much for the server; those of one wave count once."""
        together = min(self.limit, self.under_way)
        self.under_way -= 1
        if wave != self._wave or together < 2:
            return  # a request that was alone could not have had less company
        self._wave += 1
        self._full = together
        self.limit = self._good = together // 2
        self._rest(PAUSE)

    def _learn(self, rate: float) -> None:
        """Decide what the next round is like."""
        if self._pause > 1 or self.limit == self._good == self._most:
            self._pause = max(0, self._pause - 1)
            self._begin_round(skip=0)
        elif self.limit == self._good:
            self._rate = rate
            self._step()
        elif rate >= self._rate * (1 + GAIN * (self.limit / self._good - 1)):
            self._good, self._rate = self.limit, rate
            self._pauses = PAUSE if self._full == math.inf else self._pauses
            self._step()
        elif not self._misses:
            self._misses = 1
            self._begin_round(skip=0)
        else:
            self.limit = self._good
            self._wait()

    def _step(self) -> None:
        """Try a higher limit."""
        higher = min(self._most, max(self.limit + 1, int(self.limit * self._factor)))
        if higher >= self._full:
            higher = int(NEAR * self._full)
            if higher <= self.limit:
                self._full = math.inf
                self._wait()
                return
        skip, self._misses, self.limit = self.limit, 0, higher
        self._begin_round(skip=skip)

    def _wait(self) -> None:
        """Stay for a while, and for longer the next time."""
        pause, self._pauses = self._pauses, min(LONGEST_PAUSE, 2 * self._pauses)
        self._rest(pause)

    def _rest(self, rounds: int) -> None:
        """Stay for some rounds; what follows are smaller steps."""
        self._factor, self._misses, self._pause = SLOW, 0, rounds
        self._begin_round(skip=self.under_way)

    def _begin_round(self, *, skip: int) -> None:
        """Begin to measure after so many more answers."""
        self._skip, self._count, self._since = skip, 0, self._clock()
