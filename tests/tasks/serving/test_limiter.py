"""The limit's way, every number derived by hand beside it."""

from pairwright.tasks.serving.limiter import Limiter


def feed(limiter: Limiter, count: int) -> int:
    """Answer so many requests of a queue that never ends; return the limit that comes about."""
    for _ in range(count):
        limiter.under_way = max(limiter.under_way, limiter.limit)
        limiter.answered()
        limiter.under_way -= 1
    return limiter.limit


def overload(limiter: Limiter, *, together: int, times: int = 1) -> int:
    """Let so many of the requests that are under way together be too much; return the limit that comes about."""
    limiter.under_way = together
    wave = limiter.wave
    for _ in range(times):
        limiter.overloaded(wave)
        limiter.under_way -= 1
    return limiter.limit


def test_the_limit_doubles_with_each_round_up_to_the_most() -> None:
    limiter = Limiter(most=30, start=4)
    assert feed(limiter, 4) == 8
    assert feed(limiter, 8) == 16
    assert feed(limiter, 1000) == 30
    assert Limiter(most=2, start=4).limit == 2


def test_requests_that_were_under_way_together_halve_the_limit_once() -> None:
    limiter = Limiter(most=64, start=16)
    assert overload(limiter, together=16, times=5) == 8
    assert overload(limiter, together=8) == 4


def test_after_too_many_a_whole_round_lets_one_more_begin() -> None:
    limiter = Limiter(most=64, start=16)
    overload(limiter, together=16)
    assert [feed(limiter, 7), feed(limiter, 1)] == [8, 9]
    assert [feed(limiter, 8), feed(limiter, 1)] == [9, 10]


def test_a_request_that_was_alone_says_nothing_of_the_number() -> None:
    limiter = Limiter(most=64, start=2)
    assert overload(limiter, together=1) == 2
    assert overload(limiter, together=2) == 1
    assert overload(limiter, together=1) == 1


def test_rounds_with_too_little_to_ask_teach_nothing() -> None:
    limiter = Limiter(most=64, start=4)
    for _ in range(500):
        limiter.under_way = 3
        limiter.answered()
    assert limiter.limit == 4
