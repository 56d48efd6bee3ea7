"""``import pairwright``: what it has, what it loads, what it costs."""

import json
import subprocess
import sys

import pytest

import pairwright as pw

HEAVY = (
    *("pandas", "torch", "faiss", "mitsuba", "prefect", "sklearn", "scipy", "cv2", "openai", "duckdb", "pyarrow"),
    *("pydantic", "numpy", "PIL", "typer"),
)
MOST_SECONDS = 0.15


def test_importing_is_free() -> None:
    code = (
        "import sys, json, time; start = time.process_time(); import pairwright; "
        f"print(json.dumps([time.process_time() - start, [one for one in {HEAVY!r} if one in sys.modules]]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, loaded = json.loads(done.stdout)
    assert loaded == []
    assert seconds < MOST_SECONDS


def test_every_name_is_there() -> None:
    assert dir(pw) == sorted(pw.__all__)
    for name in pw.__all__:
        assert getattr(pw, name)
    assert issubclass(pw.StoreError, pw.PairwrightError)
    with pytest.raises(AttributeError):
        _ = pw.datasets  # pyright: ignore[reportAttributeAccessIssue]
