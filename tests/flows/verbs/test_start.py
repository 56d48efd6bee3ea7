"""What starting costs: which libraries a command has loaded when it ends, looked at in a process of
its own."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pairwright as pw
from tests.fixtures.builds import WIDE, build_here
from tests.fixtures.pictures import write_pictures

HEAVY = "pandas torch faiss mitsuba prefect sklearn scipy cv2 openai transformers spacy distributed"
STORE = "numpy pyarrow duckdb fsspec rich"
WRONG = ["build", "--out", "demo", "--set", "mining.nope=1"]
RUN = """
import sys
sys.argv = ["pairwright", *{words!r}]
try:
    from pairwright.flows.cli import main
    main()
except SystemExit as end:
    print(end.code or 0, file=sys.stderr)
print(*sorted(set({names!r}.split()) & set(sys.modules)), file=sys.stderr)
"""
ONLY_PYDANTIC = """
import importlib.metadata as m
m.entry_points = lambda group: [] if group == "pydantic" else 1 / 0
"""


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def run(words, names="", before=""):
    """Return what a command writes to standard error, then its exit code, then what it loaded."""
    return python(before + RUN.format(words=words, names=names)).stderr.splitlines()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    photographs = write_pictures(folder / "in", ["a", "b"])
    report = build_here(folder / "out", photographs, until="mining", settings=WIDE)
    assert report.is_complete
    return folder / "out"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--help"], 0),
        (["build", "--help"], 0),
        (["status", "demo", "--jsn"], 2),
        (WRONG, 2),
        (["build", "--out", ""], 2),
    ],
)
def test_what_is_refused_or_explained_loads_no_store(words, code):
    assert run(words, f"{HEAVY} {STORE}")[-2:] == [str(code), ""]


# DuckDB 1.5 loads pandas to read Arrow.
@pytest.mark.parametrize(
    ("option", "heavy"), [("--json", HEAVY), ("--verify", HEAVY.removeprefix("pandas "))]
)
def test_status_loads_nothing_heavy(dataset, option, heavy):
    assert run(["status", str(dataset), option], heavy)[-1] == ""


def test_plugins_are_not_looked_for_before_one_is_named(dataset):
    assert run(["status", str(dataset)], before=ONLY_PYDANTIC)[-2] == "0"
    assert run(WRONG, before=ONLY_PYDANTIC)[-2] == "2"


def test_a_build_without_faiss_ends_with_one_line(tmp_path):
    words = ["build", "--out", str(tmp_path / "demo"), "--set", "scenes.worlds=2"]
    line, *end = run(words, before="import sys; sys.modules['faiss'] = None\n")
    assert line.startswith("error: ")
    assert end == ["2", ""]
    assert not (tmp_path / "demo").exists()


def test_importing_the_package_is_free():
    names = f"{HEAVY} {STORE} pydantic PIL typer"
    code = (
        "import sys, json, time; start = time.process_time(); import pairwright; "
        "seconds = time.process_time() - start; "
        f"print(json.dumps([seconds, sorted(set({names!r}.split()) & set(sys.modules))]))"
    )
    seconds, loaded = json.loads(python(code).stdout)
    assert loaded == []
    assert seconds < 0.15


def test_every_name_of_the_package_is_there():
    assert dir(pw) == sorted(pw.__all__)
    assert all(getattr(pw, name) for name in pw.__all__)
    assert issubclass(pw.StoreError, pw.PairwrightError)
    with pytest.raises(AttributeError):
        _ = pw.datasets  # pyright: ignore[reportAttributeAccessIssue]


@pytest.fixture
def hears_interrupts():
    """Let processes hear SIGINT, which shells have those that run in the background ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def catches_sigterm(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("SigCgt:")[2].split()[0], 16) & 1 << signal.SIGTERM - 1


def interrupt(words, number, after_s):
    """Send a signal so long after a command hears signals; return its exit code and its words."""
    command = [sys.executable, "-m", "pairwright", *words]
    process = subprocess.Popen(command, stdout=-1, stderr=-1, text=True)
    while not catches_sigterm(process):
        time.sleep(0.001)
    time.sleep(after_s)
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    return process.returncode, error


# Python may end by SIGINT where exec was interrupted; shells say 130.
STOPPED = (130, -signal.SIGINT)
ENDED = (0, 1, 2, -signal.SIGTERM)
"""Quicker than the signal, or hit at its very end."""


@pytest.mark.usefixtures("hears_interrupts")
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at /proc for when signals are heard")
@pytest.mark.parametrize(
    ("number", "words"),
    [(signal.SIGINT, ["status", "DIR"]), (signal.SIGTERM, ["plan", "--profile", "laptop"])],
)
def test_a_signal_while_starting_ends_with_one_line(number, words, tmp_path):
    (tmp_path / "build.json").write_bytes(b"{}")
    words = [str(tmp_path) if word == "DIR" else word for word in words]
    ends = [interrupt(words, number, after_s) for after_s in (0, 0.1, 0.4)]
    assert {code for code, _ in ends} <= {*STOPPED, *ENDED}
    errors = [error for code, error in ends if code in STOPPED]
    assert errors
    assert all(error.startswith("Stopped.") and error.count("\n") == 1 for error in errors)
