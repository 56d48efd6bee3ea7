"""A build with changed prompts, in other processes: asked are these, once they are read."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from PIL import Image

import pairwright as pw
from pairwright import prompts
from pairwright.flows.versions.export_dataset import ExportConfig
from pairwright.prompts import load_prompt
from pairwright.schemas.errors import ConfigError
from tests.fixtures.builds import build_here
from tests.fixtures.chat_server import Asked, ChatServer, Reply, chat_server

CAPTION = "A wooden table in front of a pale wall carries the ball number {} and nothing else. "
SETTINGS = (
    "captions.writer=served",
    "models.chat.model=tiny",
    'models.chat.structured_output="none"',
    "run.rows_per_shard=1",
)


def answer(request: Asked) -> str:
    return CAPTION.format(len(request.images[0])) * 2 if request.images else "Hello."


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server(answer) as running:
        yield running


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    for side, shade in (("before", 90), ("after", 180)):
        for number in range(2):
            path = tmp_path / "photographs" / side / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (64 + number, 48), (shade, 20, 40 * number)).save(path)
    return tmp_path / "photographs"


def build(photographs: Path, server: ChatServer, *settings: str) -> list[str]:
    """Build the captions of two pairs, and return what was asked about images."""
    before = len(server.asked)
    endpoint = f"models.chat.endpoint={server.url}"
    out = photographs.parent / "out"
    report = build_here(
        out, photographs, settings=[*SETTINGS, endpoint, *settings], until="captions", workers=2
    )
    assert report.is_complete
    asked = [request.text for request in server.asked[before:] if request.images]
    return [text for text in asked if "What do you see" not in text]


def test_workers_ask_the_changed_prompts(photographs: Path, server: ChatServer) -> None:
    folder = photographs.parent / "mine"
    folder.mkdir()
    prompt = folder / "describe_image.j2"
    prompt.write_text("{# mine #}\nName what you see.\n")
    setting = f"prompts={folder}"
    assert len(build(photographs, server)) == 4
    out = photographs.parent / "out"
    images = pw.open(out)["images"].to_arrow().column("key").to_pylist()
    assert build(photographs, server, setting) == ["<image>Name what you see."] * 4
    assert build(photographs, server, setting) == []
    prompt.write_text("Name three things.")
    pw.open(out).resume()
    assert len(server.asked) == server.asked[-1].number + 1
    assert "Name three" not in server.asked[-1].text, "a resumed build keeps what was read"
    assert build(photographs, server, setting) == ["<image>Name three things."] * 4
    assert pw.open(out)["images"].to_arrow().column("key").to_pylist() == images
    captions = pw.open(out)["captions"].rows()
    hashes = {served.prompt_sha256 for row in captions for served in row.served}
    assert hashes == {sha256(b"Name three things.").hexdigest()}
    changed = pw.open(out).versions()[-1].changed
    assert "prompt describe_image: a new text" in changed
    prompt.write_text("{{ caption }}")
    asked = len(server.asked)
    with pytest.raises(ConfigError, match=r"describe_image\.j2:1: unknown variable"):
        build(photographs, server, setting)
    assert len(server.asked) == asked


def test_a_file_that_changes_during_a_build_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned = next(
        planned
        for planned in pw.Pipeline("laptop", until="captions").plan()
        if planned.stage.name == "captions"
    )
    text = load_prompt("describe_image").text
    monkeypatch.setattr(prompts, "_read", lambda name: f"changed {name}")
    with prompts.use_prompts(planned.prompts):
        assert load_prompt("describe_image").text == text


def test_texts_of_two_models_under_one_name_are_said(photographs: Path, tmp_path: Path) -> None:
    def answer_as(request: Asked) -> Reply:
        model = "tiny" if request.number % 2 else "another"
        return Reply(answer(request), model=model)

    with chat_server(answer_as) as server:
        build(photographs, server)
    out = photographs.parent / "out"
    (line,) = [str(count) for count in pw.open(out).status().answers]
    assert "captions: 2 models or revisions answered as tiny: " in line
    assert "another (" in line
    tally = pw.open(out).export("hf", tmp_path / "export", config=ExportConfig(table="captions"))
    assert list(tally.notes) == [line]
    assert "another" in (tmp_path / "export/README.md").read_text()
