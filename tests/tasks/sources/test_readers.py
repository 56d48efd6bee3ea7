"""How sources are recognised and explained, and braces in their paths."""

import subprocess
from pathlib import Path

import pytest

from pairwright.schemas.errors import SourceError
from pairwright.tasks.sources.find_files import MAX_NAMES, expand_braces
from pairwright.tasks.sources.readers import READERS, explain_reader, recognise_source


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("pictures", "folder:{}/pictures"),
        ("folder:pictures", "folder:{}/pictures"),
        ("odd:name", "folder:{}/odd:name"),
        ("nowhere", "folder:{}/nowhere"),  # said to be missing when it is listed
        ("folder:s3://bucket", "folder:s3://bucket"),
        ("scenes:", "scenes:"),
        ("scenes", "scenes:"),
    ],
)
def test_a_source_is_recognised_by_path_or_kind(text, source, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pictures").mkdir()
    Path("odd:name").mkdir()
    assert recognise_source(text) == source.format(tmp_path)
    Path("scenes").mkdir()
    assert recognise_source("scenes") == f"folder:{tmp_path}/scenes"
    assert recognise_source("scenes:") == "scenes:"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vidoe:", "choose from folder, .*`pairwright sources`"),
        ("", "folder"),
        ("folder:", "folder"),
    ],
)
def test_what_is_no_source_is_refused_with_those_there_are(text, message) -> None:
    with pytest.raises(SourceError, match=message):
        recognise_source(text)
    with pytest.raises(SourceError, match=r"audio: .*cad-inst, "):
        explain_reader("audio")


@pytest.mark.parametrize("kind", sorted(READERS))
def test_every_kind_explains_itself(kind) -> None:
    text = explain_reader(kind)
    reader = READERS[kind]
    assert reader.example.startswith(f"{kind}:")
    assert reader.about
    assert reader.about in text
    assert f"pairwright build {reader.example} --out dataset" in text
    assert len(text.splitlines()) > 6


PATTERNS = (
    "plain.tar s-{000..011}.tar {9..11} {11..9} {08..10} {0..10} {a,b}-{1..2}.tar "
    "{x,y{1..2}} {a,}b {a} {} {a..c a}b {1..}"
)


def test_braces_expand_as_in_bash() -> None:
    lines = [f"printf '%s ' {pattern}; echo" for pattern in PATTERNS.split()]
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True)
    expanded = [line.split(" ")[:-1] for line in done.stdout.splitlines()]
    assert [expand_braces(pattern) for pattern in PATTERNS.split()] == expanded
    assert len(expanded[1]) == 12


@pytest.mark.parametrize("pattern", ["{0..999999999999}", "{0..9}" * 9])
def test_too_many_names_are_refused_at_once(pattern) -> None:
    with pytest.raises(SourceError, match=str(MAX_NAMES)):
        expand_braces(pattern)
