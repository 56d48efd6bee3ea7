"""The limit's way on servers whose answers per second are known; every number is derived by hand beside it."""

import random
from collections.abc import Callable

import pytest

from pairwright.tasks.serving.limiter import Limiter


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def make(most: int = 64, start: int = 4) -> tuple[Limiter, Clock]:
    clock = Clock()
    return Limiter(most, start, clock), clock


def feed(limiter: Limiter, clock: Clock, count: int, *, per_second: float) -> list[int]:
    """Answer so many requests of a queue that never ends; return the limits that came about."""
    limits = [limiter.limit]
    for _ in range(count):
        limiter.under_way = max(limiter.under_way, limiter.limit)
        clock.now += 1 / per_second
        limiter.answered()
        limiter.under_way -= 1
        if limiter.limit != limits[-1]:
            limits.append(limiter.limit)
    return limits


def test_the_limit_doubles_while_answers_per_second_do() -> None:
    limiter, clock = make(most=32)
    assert feed(limiter, clock, 7, per_second=4) == [4]  # 4 go by, 4 are timed
    assert feed(limiter, clock, 1, per_second=4) == [4, 8]
    assert feed(limiter, clock, 11, per_second=8) == [8]  # 4 of the old limit go by, 8 are timed
    assert feed(limiter, clock, 1, per_second=8) == [8, 16]
    assert feed(limiter, clock, 8 + 16, per_second=16) == [16, 32]
    assert feed(limiter, clock, 2000, per_second=1000) == [32], "never more than the most"


def test_a_step_that_brings_a_fifth_of_what_it_might_is_kept() -> None:
    limiter, clock = make()
    feed(limiter, clock, 8, per_second=10)
    assert feed(limiter, clock, 12, per_second=12) == [8, 16]


def test_a_step_in_vain_is_taken_back_and_tried_again_later() -> None:
    limiter, clock = make()
    feed(limiter, clock, 8, per_second=10)
    assert feed(limiter, clock, 12, per_second=11.9) == [8], "one bad round may be chance"
    assert feed(limiter, clock, 8, per_second=11.9) == [8, 4]
    # The 7 that are under way go by, then come 4 rounds of 8 answers, twice the limit.
    assert feed(limiter, clock, 7 + 31, per_second=10) == [4]
    assert feed(limiter, clock, 1, per_second=10) == [4, 6]
    # 4 go by, 12 are timed, 12 once more; 6 instead of 4 would have to bring a tenth.
    assert feed(limiter, clock, 4 + 12 + 12, per_second=10.9) == [6, 4]
    # The second pause is of 8 rounds.
    assert feed(limiter, clock, 5 + 8 * 8 - 1, per_second=10) == [4]
    assert feed(limiter, clock, 1, per_second=10) == [4, 6]


def fill_up(limiter: Limiter, count: int) -> int:
    limiter.under_way = count
    return limiter.wave


def test_requests_that_were_under_way_together_halve_the_limit_once() -> None:
    limiter, _ = make(start=16)
    wave = fill_up(limiter, 16)
    for _ in range(5):
        limiter.overloaded(wave)
        limiter.under_way -= 1
    assert limiter.limit == 8
    limiter.overloaded(fill_up(limiter, 8))
    assert limiter.limit == 4


def test_a_request_that_was_alone_says_nothing_of_the_number() -> None:
    limiter, _ = make(start=2)
    limiter.overloaded(fill_up(limiter, 1))
    assert limiter.limit == 2
    limiter.overloaded(fill_up(limiter, 2))
    assert limiter.limit == 1
    for _ in range(20):
        limiter.overloaded(fill_up(limiter, 1))
    assert limiter.limit == 1


def test_after_too_many_the_limit_stays_for_some_rounds() -> None:
    limiter, clock = make(most=256, start=40)
    limiter.overloaded(fill_up(limiter, 40))
    limiter.under_way = 20
    # The 39 that are under way go by, then come 4 rounds of 40.
    assert feed(limiter, clock, 39 + 4 * 40 - 1, per_second=20) == [20]
    assert feed(limiter, clock, 1, per_second=20) == [20, 30]


def test_rounds_with_too_little_to_ask_teach_nothing() -> None:
    limiter, clock = make()
    for _ in range(500):
        limiter.under_way = 3
        clock.now += 0.001
        limiter.answered()
    assert limiter.limit == 4


def simulate(speed: Callable[[int], float], *, most: int, seconds: float, seed: int) -> tuple[Limiter, float]:
    """Run a server that shares its speed among all requests, of uneven length; return the rate of the second half."""
    rng = random.Random(seed)
    limiter, clock = make(most, 8)
    left: list[float] = []
    late = 0
    while clock.now < seconds:
        while limiter.under_way < limiter.limit:
            limiter.under_way += 1
            left.append(rng.lognormvariate(0, 0.5))
        each = speed(len(left)) / len(left)
        shortest = min(left)
        clock.now += shortest / each
        left = [length - shortest for length in left]
        left.remove(0.0)
        limiter.answered()
        limiter.under_way -= 1
        late += clock.now > seconds / 2
    return limiter, late / (seconds / 2)


MEAN = 2.718281828 ** (0.5**2 / 2)
"""Of the lengths."""


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("full", [12, 40, 100])
def test_it_finds_what_a_server_can(full: int, seed: int) -> None:
    limiter, rate = simulate(lambda count: min(count, full) / 3, most=256, seconds=200, seed=seed)
    assert rate > 0.88 * full / 3 / MEAN
    assert full / 2 < limiter.limit <= 256


def test_a_server_that_answers_one_by_one_is_not_drowned() -> None:
    limiter, rate = simulate(lambda _: 1.0, most=256, seconds=2000, seed=1)
    assert rate > 0.9 / MEAN
    assert limiter.limit < 64
