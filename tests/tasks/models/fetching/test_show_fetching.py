"""How a download gets on: lines where nobody watches, a bar on a terminal."""

import io
import logging

from rich.console import Console
from rich.progress import DownloadColumn, Progress, TextColumn

from pairwright.tasks.models.fetching import show_fetching
from pairwright.tasks.models.fetching.show_fetching import Bar, Lines, showing


def test_lines_are_few_and_say_where_it_stands(caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    clock = iter([0.0, 10.0, 29.0, 31.0, 31.0, 40.0, 40.0])
    monkeypatch.setattr(show_fetching.time, "monotonic", lambda: next(clock))
    with showing("a.pth") as lines:
        assert isinstance(lines, Lines)
        lines.begin(500_000_000, 3_000_000_000)
        for size in (1_000_000, 1_000_000, 500_000_000):
            lines.advance(size)
        lines.say("the connection was lost")
        lines.advance(1_998_000_000)
    assert [record.getMessage() for record in caplog.records] == [
        "a.pth: fetching 3.00 GB, 500.0 MB of it here already",
        "a.pth: 1.00 GB of 3.00 GB",
        "a.pth: the connection was lost",
        "a.pth: 3.00 GB of 3.00 GB",
    ]


def test_a_size_that_is_not_known_is_not_made_up(caplog):
    caplog.set_level(logging.INFO)
    Lines("a.pth").begin(0, 0)
    assert [said.startswith("a.pth: ") for said in caplog.messages] == [True]


def test_the_bar_goes_on_from_what_is_there():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80)
    with Progress(TextColumn("{task.description}"), DownloadColumn(), console=console) as bars:
        bar = Bar("a.pth", bars)
        bar.begin(40_000_000, 100_000_000)
        bar.advance(10_000_000)
        bar.say("the server answers HTTP [503]")
        assert (bars.tasks[0].completed, bars.tasks[0].total) == (50_000_000, 100_000_000)
    assert "a.pth: the server answers HTTP [503]" in out.getvalue()
