"""The verbs of versions on a small real dataset: list, compare, follow, remove, clear up."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import pairwright as pw
from pairwright.flows.versions.version import open_version
from pairwright.schemas.errors import StoreError
from pairwright.schemas.rows import ImageRow, PairRow, PreferenceRow, Row
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.snapshot import find_live
from pairwright.tasks.training.freeze_rows import FILE, FrozenRows, Needs, count_frozen, freeze_rows
from tests.fixtures.command import run
from tests.flows.conftest import SMALL, WIDE, build

Call = Callable[..., str]
SPLITS = ("train", "validation", "test")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Return a way to call the command line in this process; it gives the output."""

    def called(*words: object, code: int = 0) -> str:
        ended = run(*words)
        said = capsys.readouterr()
        assert ended == code, said.err
        return said.out + said.err

    return called


def images_of(dataset: Path, version: int | None = None) -> dict[str, ImageRow]:
    rows = pw.open(dataset, version=version)["images"].rows()
    return {row.key: row for row in rows if isinstance(row, ImageRow)}


def pairs_of(dataset: Path) -> list[PairRow]:
    return [row for row in pw.open(dataset)["pairs"].rows() if isinstance(row, PairRow)]


def test_versions_are_listed_with_what_was_asked_for_otherwise(copy: Path, call: Call) -> None:
    build(copy, None, until="mining", settings=[*SMALL, *WIDE, "mining.max_similarity=0.9"])
    next(copy.glob("tables/preferences/*/part-*")).unlink()
    first, second = json.loads(call("versions", copy, "--json"))
    names = ("version", "parent", "newest", "missing")
    assert [first[name] for name in names] == [1, None, False, 1]
    assert [second[name] for name in names] == [2, 1, True, 0]
    changes = ["mining.max_similarity was 1.0, is 0.9", "until was none, is mining"]
    assert second["changed"] == changes
    assert first["rows"]["images"] == second["rows"]["images"] == 9
    said = call("versions", copy)
    assert re.search(r"\b1 of .*files", said)
    assert "newest" in said


def test_two_versions_are_compared_by_key(copy: Path, call: Call) -> None:
    pairs = pairs_of(copy)
    limit = sorted(pair.similarity for pair in pairs)[-2]  # so that at least one goes
    settings = [*SMALL, *WIDE, f"mining.max_similarity={limit - 1e-6}"]
    build(copy, None, until="mining", settings=settings)
    left = pairs_of(copy)
    found = json.loads(call("diff", copy, 1, 2, "--json", "--stage", "mining"))
    by_stage = {stage["stage"]: stage for stage in found["stages"]}
    assert by_stage["pairs"]["went"] == len({p.key for p in pairs} - {p.key for p in left})
    assert by_stage["pairs"]["came"] == len({p.key for p in left} - {p.key for p in pairs})
    assert by_stage["pairs"]["rows"] == [len(pairs), len(left)]
    assert (by_stage["embeddings"]["came"], by_stage["embeddings"]["went"]) == (0, 0)
    assert "images" not in by_stage
    assert found["settings"][0].startswith("mining.max_similarity was 1.0, is ")
    assert "  mining.max_similarity was 1.0, is " in call("diff", copy, 1, 2)
    assert "nouns" in call("diff", copy, 1, 2, "--stage", "nouns", code=2)
    assert "version 9" in call("diff", copy, 1, 9, code=2)


def test_a_row_is_followed_down_and_up(copy: Path, call: Call) -> None:
    preference = next(iter(pw.open(copy)["preferences"].rows()))
    assert isinstance(preference, PreferenceRow)
    first, second = preference.image_keys
    up = json.loads(call("lineage", copy, preference.key[:12], "--json"))
    assert up["row"]["table"] == "preferences"
    assert up["row"]["made"]["chosen_model"] == "scene-graph"
    from_it = {(row["table"], row["key"]) for row in up["made_from"]}
    assert {("images", first), ("images", second), ("pairs", preference.subject)} <= from_it
    assert up["made_of_it"] == []
    assert {"preferences", "pairs", "images"} <= up["fingerprints"].keys()
    down = json.loads(call("lineage", copy, first, "--json"))
    made = {(row["table"], row["key"]) for row in down["made_of_it"]}
    assert ("preferences", preference.key) in made
    mine = {pair.key for pair in pairs_of(copy) if first in (pair.first, pair.second)}
    assert {row["key"] for row in down["made_of_it"] if row["table"] == "pairs"} == mine
    assert [row["table"] for row in down["made_from"]] == ["items"]
    said = call("lineage", copy, first)
    assert f"images {first} name world-" in said
    assert preference.key in said
    assert "several keys begin with" in call("lineage", copy, "0", code=2)
    assert "'xyz'" in call("lineage", copy, "xyz", code=2)


def test_a_removed_image_leaves_at_once_and_the_rest_stays(
    copy: Path, call: Call, tmp_path: Path
) -> None:
    """All on a dataset whose source cannot be read again: nothing is built."""
    pw.open(copy).report(pairs=30)
    before = rows_of(copy)
    victim = next(row for row in before["images"].values() if row.key == pairs_of(copy)[0].first)
    assert isinstance(victim, ImageRow)
    down = json.loads(call("lineage", copy, victim.key, "--json"))["made_of_it"]
    said = call("remove", copy, "--name", victim.name, "--reason", "asked by mail")
    counts: dict[str, int] = {"images": 1}
    for row in down:
        counts[row["table"]] = counts.get(row["table"], 0) + 1
    assert ", ".join(f"{table} {n}" for table, n in counts.items()) in said
    assert victim.key in call("remove", copy)
    gone = {victim.key, *(row["key"] for row in down)}
    left = {
        table: {key: row for key, row in rows.items() if key not in gone}
        for table, rows in before.items()
    }
    assert rows_of(copy) == left
    assert len(pw.open(copy)["pairs"]) == len(left["pairs"])
    call("export", copy, "--table", "pairs", "--to", tmp_path / "pairs")
    assert not holds_image(tmp_path / "pairs", victim)

    said = call("gc", copy)
    assert "Deleted version 1" in said
    assert not holds_image(copy, victim), "neither in tables nor in the pages of the report"
    assert rows_of(copy) == left
    assert not pw.open(copy).status().unfinished
    assert "0 files" in call("gc", copy, "--dry-run")
    call("status", copy, "--verify")
    resumed = build(copy, None, settings=[*SMALL, *WIDE])
    assert rows_of(resumed) == left


def rows_of(dataset: Path) -> dict[str, dict[str, Row]]:
    """Return the rows of some tables of the newest version by key."""
    rows: dict[str, dict[str, Row]] = {}
    with open_version(Folder(str(dataset))).resolved() as (opened_build, stages):
        for planned, counts in stages:
            name = planned.stage.name
            if name in ("images", "pairs", "differences", "splits", "retrieved", "preferences"):
                rows[name] = {
                    row.key: row for row in find_live(opened_build, planned, planned.stage.writes)
                }
                assert counts.rows == len(rows[name])
    return rows


def holds_image(folder: Path, victim: ImageRow) -> bool:
    """Return whether a file holds the bytes of an image."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return any(victim.image in path.read_bytes() for path in files)


def test_images_are_named_by_prefix_and_name(copy: Path, call: Call) -> None:
    one, other, *_ = sorted(images_of(copy))
    said = call("remove", copy, other, one[:12], "f" * 32)
    assert "f" * 32 in said
    assert "3 images" in said
    assert "beach.jpg" in call("remove", copy, "beach.jpg", code=2)
    assert "beach.jpg" in call("remove", copy, "--name", "beach.jpg", code=2)
    assert "0123456789" in call("remove", copy, "0123456789", code=2)


def test_only_the_newest_versions_stay(copy: Path, call: Call) -> None:
    for worlds in (2, 1):
        build(copy, None, until="mining", settings=[*SMALL, *WIDE, f"scenes.worlds={worlds}"])
    assert "delete version 1" in call("gc", copy, "--keep", 2, "--dry-run")
    assert len(images_of(copy, version=1)) == 9
    assert "kept: 2, 3" in call("gc", copy, "--keep", 2)
    assert [len(images_of(copy, version=number)) for number in (2, 3)] == [6, 3]
    assert not (copy / "tables/preferences").exists()
    assert "version 1" in call("lineage", copy, "0", "--version", 1, code=2)


def _freeze(dataset: Path, name: str) -> FrozenRows:
    """Begin a training: its settings, and which rows it is on."""
    run = dataset / "runs" / name
    run.mkdir(parents=True)
    with open_version(Folder(str(dataset))).resolved() as (opened_build, stages):
        planned = next(planned for planned, _ in stages if planned.stage.name == "preferences")
        freeze_rows(opened_build, planned, run / FILE, needs=Needs(), splits=SPLITS)
    (run / "config.yaml").write_text("objective: sft\n")
    split = next(split for split in SPLITS if count_frozen(run / FILE, split))
    return FrozenRows(folder=Folder(str(dataset)), file=str(run / FILE), split=split)


def test_an_unfinished_training_keeps_its_rows(copy: Path, call: Call) -> None:
    rows = _freeze(copy, "one")
    before = rows.read(0)
    build(copy, None, until="mining", settings=[*SMALL, *WIDE, "scenes.worlds=1"])
    call("gc", copy, "--keep", 1)
    assert rows.read(0) == before
    (copy / "runs/one/checkpoint").mkdir()
    call("gc", copy)
    with pytest.raises(StoreError):
        rows.read(0)


def test_an_unfinished_training_on_a_removed_image_cannot_go_on(copy: Path, call: Call) -> None:
    rows = _freeze(copy, "one")
    victim = rows.read(0).image_keys[0]
    call("remove", copy, victim)
    said = call("gc", copy)
    assert "training runs/one " in said
    assert re.search(r"may hold parts of them: .*runs", said)
    with pytest.raises(StoreError):
        rows.read(0)


FOREIGN = {
    "work/thesis/text.tex": "my thesis",
    "work/env.lock": "lock",
    "work/env/main.py": "my code",
    "journals/nature-reviews-0123456789abcdef/a.pdf": "paper",
    "excluded/old/z.txt": "old",
    "notes.txt": "notes",
}


def write_foreign(folder: Path) -> None:
    for name, text in FOREIGN.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_build_refuses_a_folder_with_other_files(tmp_path: Path, call: Call) -> None:
    write_foreign(tmp_path)
    said = call("build", "scenes", "--out", tmp_path, code=2)
    assert "is neither empty nor a dataset" in said
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == {
        *FOREIGN
    }


def test_clean_up_leaves_files_of_others_alone(copy: Path, call: Call) -> None:
    write_foreign(copy)
    build(copy, None, until="mining", settings=[*SMALL, *WIDE, "mining.max_similarity=0.9"])
    call("gc", copy, "--keep", 1)
    assert {name: (copy / name).read_text() for name in FOREIGN} == FOREIGN
