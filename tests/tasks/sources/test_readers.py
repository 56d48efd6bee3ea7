"""How sources are recognised, and braces in their paths; reading is tested with each kind."""

import subprocess
from pathlib import Path

import pytest

from pairwright.schemas.errors import SourceError
from pairwright.tasks.sources.find_files import MAX_NAMES, expand_braces
from pairwright.tasks.sources.readers import READERS, explain_reader, recognise_source


def test_a_folder_is_recognised_by_path_or_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pictures").mkdir()
    Path("odd:name").mkdir()
    assert recognise_source("pictures") == f"folder:{tmp_path}/pictures"
    assert recognise_source("folder:pictures") == f"folder:{tmp_path}/pictures"
    assert recognise_source("odd:name") == f"folder:{tmp_path}/odd:name"
    assert (
        recognise_source("nowhere") == f"folder:{tmp_path}/nowhere"
    )  # said to be missing when it is listed
    assert recognise_source("folder:s3://bucket") == "folder:s3://bucket"


def test_scenes_are_recognised_unless_a_folder_has_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert recognise_source("scenes") == recognise_source("scenes:") == "scenes:"
    Path("scenes").mkdir()
    assert recognise_source("scenes") == f"folder:{tmp_path}/scenes"
    assert recognise_source("scenes:") == "scenes:"


@pytest.mark.parametrize("text", ["audio:song.mp3", "vidoe:"])
def test_an_unknown_kind_is_refused_with_those_that_are_known(text: str) -> None:
    with pytest.raises(SourceError, match=r"choose from folder, .*`pairwright sources`"):
        recognise_source(text)


@pytest.mark.parametrize("text", ["", "folder:"])
def test_a_source_without_a_path_is_refused(text: str) -> None:
    with pytest.raises(SourceError, match="folder"):
        recognise_source(text)


@pytest.mark.parametrize("kind", sorted(READERS))
def test_every_kind_explains_itself(kind: str) -> None:
    text = explain_reader(kind)
    assert READERS[kind].example.startswith(f"{kind}:")
    assert READERS[kind].about
    assert READERS[kind].about in text
    assert f"pairwright build {READERS[kind].example} --out dataset" in text
    assert len(text.splitlines()) > 6


def test_an_unknown_kind_is_not_explained() -> None:
    with pytest.raises(SourceError, match=r"audio: .*cad-inst, "):
        explain_reader("audio")


PATTERNS = (
    "plain.tar s-{000..011}.tar {9..11} {11..9} {08..10} {0..10} {a,b}-{1..2}.tar "
    "{x,y{1..2}} {a,}b {a} {} {a..c"
)


@pytest.mark.parametrize("pattern", [*PATTERNS.split(), "a}b", "{1..}"])
def test_as_bash_does(pattern):
    said = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {pattern}"], capture_output=True, text=True, check=True
    )
    assert expand_braces(pattern) == said.stdout.split("\n")[:-1]


@pytest.mark.parametrize("pattern", ["{0..999999999999}", "{0..9}" * 9])
def test_too_many_names_are_refused_at_once(pattern):
    with pytest.raises(SourceError, match=str(MAX_NAMES)):
        expand_braces(pattern)
