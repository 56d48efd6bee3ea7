"""What starting costs: which libraries a command has loaded when it ends, looked at in a process of
its own."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import pairwright as pw

HEAVY = "pandas torch faiss mitsuba prefect sklearn scipy cv2 openai transformers spacy distributed"
STORE = "numpy pyarrow duckdb fsspec rich"
RUN = """
import sys
import time
sys.argv = ["pairwright", *{words!r}]
try:
    from pairwright.flows.cli import main
    main()
except SystemExit as end:
    print(end.code or 0, file=sys.stderr)
print(*sorted(set({names!r}.split()) & set(sys.modules)), file=sys.stderr)
"""


def loaded_by(code: str) -> list[str]:
    """Return the last two lines that a process writes to standard error."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stderr.splitlines()[-2:]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--help"], 0),
        (["build", "--help"], 0),
        (["status", "demo", "--jsn"], 2),
        (["build", "--out", "demo", "--set", "mining.nope=1"], 2),
        (["build", "--out", ""], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_refused_or_explained_loads_no_store(words: list[str], code: int) -> None:
    assert loaded_by(RUN.format(words=words, names=f"{HEAVY} {STORE}")) == [str(code), ""]


@pytest.mark.parametrize("options", [["--json"], ["--verify"]], ids=" ".join)
def test_status_loads_nothing_heavy(mined: Path, options: list[str]) -> None:
    heavy = (
        HEAVY.removeprefix("pandas ") if "--verify" in options else HEAVY
    )  # DuckDB 1.5 loads it to read Arrow
    assert loaded_by(RUN.format(words=["status", str(mined), *options], names=heavy))[-1] == ""


@pytest.mark.parametrize(
    "words", [["status"], ["build", "--out", "demo", "--set", "mining.nope=1"]]
)
def test_plugins_are_not_looked_for_before_one_is_named(words: list[str], mined: Path) -> None:
    refuse = (
        "import importlib.metadata as m\nm.entry_points = lambda group: [] if group == "
        "'pydantic' else 1 / 0\n"
    )
    said = loaded_by(
        refuse
        + RUN.format(words=[*words, *([str(mined)] if words == ["status"] else [])], names="")
    )
    assert said[0] == ("2" if "--set" in words else "0")


def test_a_build_without_faiss_ends_with_one_line(tmp_path: Path) -> None:
    words = ["build", "--out", str(tmp_path / "demo"), "--set", "scenes.worlds=2"]
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.modules['faiss'] = None\n" + RUN.format(words=words, names=""),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stderr.splitlines()
    assert said[0].startswith("error: ")
    assert (said[1:], (tmp_path / "demo").exists()) == (["2", ""], False)


def test_importing_the_package_is_free() -> None:
    names = f"{HEAVY} {STORE} openai pydantic PIL typer"
    code = (
        "import sys, json, time; start = time.process_time(); import pairwright; "
        f"print(json.dumps([time.process_time() - start, sorted(set({names!r}.split()) & "
        f"set(sys.modules))]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, loaded = json.loads(done.stdout)
    assert loaded == []
    assert seconds < 0.15


def test_every_name_of_the_package_is_there() -> None:
    assert dir(pw) == sorted(pw.__all__)
    for name in pw.__all__:
        assert getattr(pw, name)
    assert issubclass(pw.StoreError, pw.PairwrightError)
    with pytest.raises(AttributeError):
        _ = pw.datasets  # pyright: ignore[reportAttributeAccessIssue]


@pytest.fixture
def hears_interrupts() -> Iterator[None]:
    """Let processes hear SIGINT, which shells have those that run in the background ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hears_interrupts")
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at /proc for when signals are heard")
@pytest.mark.parametrize(
    ("number", "words"),
    [(signal.SIGINT, ["status", "DIR"]), (signal.SIGTERM, ["plan", "--profile", "laptop"])],
)
def test_a_signal_while_starting_ends_with_one_line(
    number: signal.Signals, words: list[str], tmp_path: Path
) -> None:
    (tmp_path / "build.json").write_bytes(b"{}")
    command = [
        sys.executable,
        "-m",
        "pairwright",
        *(str(tmp_path) if word == "DIR" else word for word in words),
    ]
    ended = 0
    for after_s in (0, 0.1, 0.4):
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        caught = Path(f"/proc/{process.pid}/status")
        while (
            not int(caught.read_text().partition("SigCgt:")[2].split()[0], 16)
            & 1 << signal.SIGTERM - 1
        ):
            time.sleep(0.001)
        time.sleep(after_s)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        if process.returncode in (
            130,
            -signal.SIGINT,
        ):  # Python may end so where exec was interrupted; shells say 130
            ended += 1
            assert said.startswith("Stopped.")
            assert said.count("\n") == 1
        else:
            assert process.returncode in (0, 1, 2, -signal.SIGTERM), (
                said
            )  # quicker, or at its very end
    assert ended
