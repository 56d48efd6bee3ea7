"""From a page's file to what is exported and trained on, and what clearing up leaves of it."""

import json
from itertools import chain

import pairwright as pw
from pairwright.flows.remove_images import collect_garbage
from pairwright.flows.version import open_version
from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.store.decisions import read_decisions
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training.freeze_rows import FrozenRows, Needs, count_reasons, freeze_rows
from tests.fixtures.command import run
from tests.flows.conftest import SMALL, WIDE, build


def preferences(copy) -> list[PreferenceRow]:
    rows = pw.open(copy)["preferences"].rows(without=("images", "rejected_images"))
    return [row for row in rows if isinstance(row, PreferenceRow) and row.rejected]


def write(path, *decisions):
    lines = [{"key": key, "verdict": verdict, "at": "2026-11-21T11:00:00Z", **more} for key, verdict, more in decisions]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_a_file_is_stored_and_what_it_is_not_about_is_named(copy, tmp_path, capsys):
    rows = preferences(copy)
    pair = next(row.key for row in pw.open(copy)["pairs"].rows() if row.key != rows[0].subject)
    file = write(
        tmp_path / "decisions.jsonl",
        (rows[0].key, "edit", {"chosen": "New."}),
        (pair, "reject", {}),
        (pair, "edit", {"chosen": "A pair has no text."}),
        ("f" * 32, "accept", {}),
    )
    assert run("decide", copy, file) == 1
    said = capsys.readouterr()
    assert "stored: 2" in said.out
    assert "2 (1 edited, 1 rejected)" in said.out
    assert f"pairwright export {copy} --to DIR --accepted" in said.out
    assert "f" * 32 in said.err
    assert pair in said.err
    assert run("decide", copy, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["decided"], told["accept"], told["edit"], told["reject"]) == (2, 0, 1, 1)
    file.write_text('{"key": 1}\n')
    assert run("decide", copy, file) == 2
    assert "line 1: key: " in (capsys.readouterr().err)
    assert run("export", copy, "--to", tmp_path / "out", "--format", "trl") == 0
    assert "1 edited, 1 rejected" in capsys.readouterr().out


def test_trainings_leave_out_what_people_rejected_or_edited(copy, tmp_path):
    rejected, edited = (row.key for row in preferences(copy)[:2])
    folder = Folder(str(copy))
    file = write(tmp_path / "d.jsonl", (rejected, "reject", {}), (edited, "edit", {"rejected": "Wrong."}))
    assert len(pw.open(folder.url).decide(file).known) == 2
    with open_version(folder).settled() as (build, stages):
        planned = next(planned for planned, _ in stages if planned.stage.name == "preferences")
        told = {"needs": Needs(), "splits": ("train", "validation", "test")}
        before = freeze_rows(build, planned, tmp_path / "rows.arrow", **told)
        after = freeze_rows(build, planned, tmp_path / "rows.arrow", decisions=read_decisions(folder), **told)
    assert {one.key for one in after} - {one.key for one in before} == {rejected, edited}
    reasons = count_reasons(after)
    assert reasons["rejected by people"] == 1
    assert reasons["edited by people: its new texts are in exports only"] == 1


def test_trainings_may_take_only_what_people_accepted(copy, tmp_path):
    folder, rows = Folder(str(copy)), preferences(copy)
    trained = [row.key for row in rows if row.split == "train"]
    held_out = {row.key for row in rows if row.split != "train"}
    pw.open(folder.url).decide(write(tmp_path / "d.jsonl", *((key, "accept", {}) for key in trained[:3])))
    with open_version(folder).settled() as (build, stages):
        planned = next(planned for planned, _ in stages if planned.stage.name == "preferences")
        told = {"needs": Needs(accepted="train"), "splits": ("train", "validation", "test")}
        refused = freeze_rows(build, planned, tmp_path / "rows.arrow", decisions=read_decisions(folder), **told)
    assert {one.key for one in refused} == set(trained[3:])
    assert {one.reason for one in refused} == {"not accepted by people"}
    frozen = [FrozenRows(folder=folder, file=str(tmp_path / "rows.arrow"), split=split) for split in told["splits"]]
    assert set(chain.from_iterable(map(FrozenRows.keys, frozen))) == held_out | set(trained[:3])


def test_clearing_up_forgets_what_was_said_of_a_removed_image(copy, tmp_path):
    folder, rows = Folder(str(copy)), preferences(copy)
    gone = rows[0]
    kept = next(row for row in rows if not set(row.image_keys) & set(gone.image_keys))
    file = write(tmp_path / "d.jsonl", (gone.key, "edit", {"chosen": "Private words."}), (kept.key, "accept", {}))
    pw.open(folder.url).decide(file)
    collect_garbage(folder, keep=None, dry_run=False)
    assert len(read_decisions(folder)) == 2
    pw.open(folder.url).remove(keys=[gone.image_keys[0]])
    build(copy, None, settings=[*SMALL, *WIDE])
    assert collect_garbage(folder, keep=None, dry_run=False).swept == 1
    assert set(read_decisions(folder).by_key) == {kept.key}
    assert not any(b"Private" in path.read_bytes() for path in (copy / "decisions").iterdir())
