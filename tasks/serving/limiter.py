"""Find out how many requests at once a server answers best."""


class Limiter:
    """Count the requests under way at one endpoint, and say how many there may be."""

    def __init__(self, most: int, start: int) -> None:
        """Start small; there are never more than ``most``."""
        self.most = most
        self.limit = min(start, most)
        self.under_way = 0

    @property
    def is_free(self) -> bool:
        """Say whether one more may begin."""
        return self.under_way < self.limit

    def begin(self) -> None:
        """Count a request that begins."""
        self.under_way += 1

    def end(self, *, answered: bool, overloaded: bool) -> None:
        """Count a request that has ended, and learn from how it ended."""
        self.under_way -= 1
        if answered:
            self.limit = min(self.most, self.limit + 1)
        elif overloaded:
            self.limit = max(1, self.limit // 2)
