"""Limit the requests under way at one endpoint as TCP limits packets: up while answers come, halved when they do not.

At first each answer lets one more request begin, so that the limit doubles with each round; once a server was full or
late, a whole round of answers does. Answers while too little was asked say nothing of the server and do not count.
"""


class Limiter:
    """Adaptive limit of the requests under way at one endpoint."""

    def __init__(self, most: int, start: int) -> None:
        self.limit = min(start, most)
        self.under_way = 0
        """Counted by who asks."""
        self.wave = 0
        """Of requests that begin now; how often the limit was halved."""
        self._most = most
        self._count = 0
        """Answers since the limit changed."""

    def answered(self) -> None:
        """Learn from a request that was answered and is still counted in ``under_way``."""
        if self.under_way < self.limit:
            return
        self._count += 1
        if self._count >= (self.limit if self.wave else 1):
            self.limit, self._count = min(self.limit + 1, self._most), 0

    def overloaded(self, wave: int) -> None:
        """Learn from a request that was too much for the server; those of one wave count once."""
        together = min(self.limit, self.under_way)
        if wave == self.wave and together > 1:  # one that was alone could not have had less company
            self.wave += 1
            self.limit, self._count = together // 2, 0
