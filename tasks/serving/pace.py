"""How a client waits and how much it takes: numbers that no profile names, since they suit every server."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Say how a client waits between tries, where it starts, and how much it takes; tests are quicker."""

    backoff_s: float = 0.5
    """Longest wait before the second try; twice as long before each later one. What is waited is any share of it."""
    backoff_most_s: float = 30.0
    rest_s: float = 0.5
    """How long an endpoint that cannot be reached is left alone; twice as long each time that it fails again."""
    rest_most_s: float = 15.0
    connect_s: float = 10.0
    """Longest wait for a connection."""
    idle_s: float = 4.0
    """How long a connection is kept for the next request; servers of vLLM's kind close theirs after five seconds."""
    start: int = 8
    """Requests that are under way at an endpoint before anything is known of it."""
    max_bytes: int = 4_194_304
    """Longer answers are broken: one of 32,000 tokens has some 200,000 bytes."""
    refusals: int = 5
    """So many refused questions, before any was answered, mean that the server is set up wrong; the rows are not."""


PACE = Pace()
