"""The tests of ``make gpu-test``, and the table that they leave: ``gpu-test.md``, one Markdown
table to send.

Every test writes one line: its name, how it ended, a figure (or why it was skipped, or failed),
seconds. The first line names the machine. With ``--dry-run`` all work is done on the CPU and
compared with the CPU's: that tries the tests, and says nothing of a GPU.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.gpu.machine import describe_machine

TABLE = "gpu-test.md"
DRY = "dry run on the CPU: says nothing of a GPU"
OnCpu = Callable[[], AbstractContextManager[None]]


@dataclass
class Line:
    """A line of the table."""

    name: str
    result: str = "passed"
    figure: str = ""
    seconds: float = 0.0


LINES = pytest.StashKey[dict[str, Line]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--dry-run",
        action="store_true",
        help="tests of a GPU: try them on the CPU, against the CPU",
    )


def pytest_configure(config: pytest.Config) -> None:
    if is_dry(config):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before PyTorch or Faiss look


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Take in a part of a test: its set-up, itself, or its end."""
    report = yield
    lines = item.config.stash.setdefault(LINES, {})
    line = lines.setdefault(item.nodeid, Line(item.nodeid.rpartition("/")[2]))
    line.seconds += report.duration
    told = [str(value) for name, value in item.user_properties if name == "figure"]
    if report.skipped:
        line.result, told = "skipped", [report.longrepr[2].removeprefix("Skipped: ")]
    elif report.failed:
        line.result, told = "failed", [*told, str(call.excinfo.value)]
    if told and (line.result == "passed" or not report.passed):
        line.figure = "; ".join(told)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    if lines := session.config.stash.get(LINES, None):
        machine = Line("machine", DRY if is_dry(session.config) else "", describe_machine())
        rows = (
            f"| {one.name} | {one.result} | {in_a_cell(one.figure)} | {one.seconds:.1f} |"
            for one in (machine, *lines.values())
        )
        text = "\n".join(("| test | result | figure | seconds |", "|---|---|---|---:|", *rows))
        place_of(session.config).write_text(f"{text}\n", encoding="utf-8")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.config.stash.get(LINES, None):
        terminalreporter.write_line(f"{place_of(terminalreporter.config)}: the table, to send")


def place_of(config: pytest.Config) -> Path:
    """Return where the table goes: into the folder where the tests were started."""
    return config.invocation_params.dir / TABLE


def in_a_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")[:900]


def is_dry(config: pytest.Config) -> bool:
    return bool(config.getoption("dry_run", default=False))


@pytest.fixture(scope="session")
def dry(pytestconfig: pytest.Config) -> bool:
    return is_dry(pytestconfig)


@pytest.fixture(scope="session", autouse=True)
def gpus(dry: bool) -> int:
    """Return how many GPUs there are, two in a dry run; without any, every test is skipped."""
    from pairwright.tasks.models.devices import count_gpus

    if not (found := 2 if dry else count_gpus()):
        pytest.skip("no GPU that PyTorch can use")
    return found


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Return what writes into the test's line, whatever comes of the test then."""
    return lambda text: request.node.user_properties.append(("figure", text))


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> OnCpu:
    """Return a context in which this process's encoders find no GPU; they are loaded anew for it,
    and after it."""
    from pairwright.tasks.models import devices, image_encoder, open_clip_embedder

    def forget() -> None:
        for load in (image_encoder.load_dinov2, open_clip_embedder.load_encoder):
            load.cache_clear()

    @contextmanager
    def without() -> Iterator[None]:
        forget()
        with monkeypatch.context() as patch:
            patch.setattr(devices, "DRIVERS", ())
            yield
        forget()

    return without
