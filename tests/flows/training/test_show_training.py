"""How a training is shown: lines, a bar on a terminal of 80 columns."""

import logging
from io import StringIO

from rich.console import Console

from pairwright.flows.training.show_training import TrainingBar, TrainingLines

VALUES = {
    "loss": 0.69314,
    "margin": -0.01,
    "accuracy": 0.5,
    "rows per second": 19.649,
    "learning_rate": 1e-4,
}


def test_lines(caplog):
    lines = TrainingLines()
    with caplog.at_level(logging.INFO, logger="pairwright"):
        lines.begin(0, 20)
        lines.begin(5, 20)
        lines.advance(6)
        lines.logged(6, "train", VALUES)
        lines.logged(6, "held-out", {"loss": 0.5})
    assert caplog.messages == [
        "training: 20 steps",
        "training: 15 of 20 steps to do",
        "step 6/20: loss 0.6931, margin -0.01, accuracy 0.5, 19.6 rows/s",
        "step 6/20, held-out: loss 0.5",
    ]


def test_a_bar_takes_one_line_of_80_columns():
    console = Console(file=StringIO(), force_terminal=True, width=80, color_system=None)
    bar = TrainingBar(console)
    bar.begin(0, 10_000)
    with bar.progress:
        bar.advance(1)
        bar.logged(1, "train", VALUES)
        bar.logged(1, "held-out", {"loss": 0.5})
    assert isinstance(console.file, StringIO)
    printed = console.file.getvalue()
    assert "step 1, held-out: loss 0.5" in printed
    last = next(line for line in reversed(printed.splitlines()) if "/10000" in line)
    assert "loss 0.6931, margin -0.01" in last
    assert max(map(len, printed.splitlines())) <= 80 + len("\x1b[2K\x1b[?25l\x1b[1A")
