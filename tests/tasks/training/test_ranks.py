"""The first signal asks for an orderly end, the second ends at once."""

import os
import signal
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pairwright.tasks.training import ranks
from pairwright.tasks.training.ranks import stoppable


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_and_two(number):
    trainer, before = cast("Any", SimpleNamespace(stopping=False)), signal.getsignal(number)
    with stoppable(trainer):
        os.kill(os.getpid(), number)
        assert trainer.stopping
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_a_launcher_passes_on_what_the_terminal_has_said(monkeypatch):
    """Of several processes, a second signal soon after the first is the same one."""
    trainer, now = cast("Any", SimpleNamespace(stopping=False)), [100.0]
    monkeypatch.setattr(ranks, "count_ranks", lambda: 2)
    monkeypatch.setattr(ranks.time, "monotonic", lambda: now[0])
    with stoppable(trainer):
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
        assert trainer.stopping
        now[0] += ranks.PASSED_ON
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_threads_that_get_no_signals_train_too():
    entered = []

    def train():
        with stoppable(cast("Any", SimpleNamespace(stopping=False))):
            entered.append(True)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert entered == [True]
