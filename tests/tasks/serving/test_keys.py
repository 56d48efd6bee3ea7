"""Keys come from the environment or from a real Prefect server, and show themselves nowhere."""

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.serving.keys import load_key
from tests.fixtures.prefect_server import free_port, prefect_server

SECRET = "sk-123/abc"


def test_a_key_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", f" {SECRET}\n")
    key = load_key("SOME_KEY")
    assert key.value == SECRET
    assert repr(key) == "Key(name='SOME_KEY')"
    assert "SOME_KEY" in key.place


@pytest.mark.parametrize("value", [None, " \n"])
def test_no_key_is_empty(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("SOME_KEY", value)
    key = load_key("SOME_KEY")
    assert not key.value
    assert key.hide("nothing is hidden") == "nothing is hidden"


@pytest.mark.parametrize("value", ["sk 123", "sk-\u00e9", "sk-\x01"])
def test_what_is_no_key_is_refused_without_being_shown(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("SOME_KEY", value)
    with pytest.raises(ConfigError, match=r"^models\.judge\.key: .*SOME_KEY") as e:
        load_key("SOME_KEY", field="models.judge")
    assert "sk" not in str(e.value)


def test_a_key_is_taken_out_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", 'sk-"1"')
    key = load_key("SOME_KEY")
    assert key.hide('You sent sk-"1", sk-"1"!') == "You sent ***, ***!"
    assert key.hide_in_body(b'no JSON: sk-"1" \xff') == b"no JSON: *** \xff"
    assert key.hide_in_body(b'{"key": "sk-\\u0022\\u0031\\""}') == b'{"key": "***"}'


def test_a_key_does_not_travel_with_a_pickle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", SECRET)
    with pytest.raises(TypeError, match=r"\bkey\b"):
        pickle.dumps(load_key("SOME_KEY"))


def run_python(environment: dict[str, str], script: str) -> str:
    """Return what a script prints, or why it fails, in a process of its own: Prefect reads its settings once."""
    how = {"env": environment, "cwd": Path(__file__).parents[3], "capture_output": True, "text": True, "timeout": 120}
    done = subprocess.run([sys.executable, "-c", script], check=False, **how)
    return done.stderr if done.returncode else done.stdout


LOAD = (
    "from pairwright.tasks.serving.keys import load_key; "
    "key = load_key('block:{}', field='models.language'); print(key.value, repr(key))"
)


@pytest.mark.slow
def test_a_key_of_a_prefect_block(tmp_path: Path) -> None:
    saved = "; ".join(
        ["from prefect.blocks.system import Secret"]
        + [f"Secret(value={value!r}).save({name!r})" for name, value in {"mine": SECRET, "digits": "12345"}.items()]
        + ["Secret(value={'a': 1}).save('odd')"]
    )
    with prefect_server(tmp_path) as running:
        server = running.environment
        assert run_python(server, saved) == ""
        assert run_python(server, LOAD.format("mine")) == f"{SECRET} Key(name='block:mine')\n"
        assert run_python(server, LOAD.format("digits")) == "12345 Key(name='block:digits')\n"
        odd, other = (run_python(server, LOAD.format(name)) for name in ("odd", "other"))
    assert "ConfigError: models.language.key: the Prefect Secret block 'odd' holds no text" in odd
    assert "ConfigError: models.language.key: the Prefect server has no Secret block 'other': create it under" in other


def test_a_block_needs_a_prefect_server(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    environment["PREFECT_HOME"] = str(tmp_path)
    said = run_python(environment, LOAD.format("mine"))
    assert re.search("ConfigError: models.language.key: block:mine .*PREFECT_API_URL", said)
    url = f"http://127.0.0.1:{free_port()}/api"
    said = run_python({**environment, "PREFECT_API_URL": url, "PREFECT_CLIENT_MAX_RETRIES": "0"}, LOAD.format("x"))
    assert f"ConfigError: models.language.key: block:x: {url} " in said
