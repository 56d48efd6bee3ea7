"""From a page's file to what is exported and trained on, and what clearing up leaves of it."""

import json

import numpy as np

import pairwright as pw
from pairwright.flows.versions.collect_garbage import collect_garbage
from pairwright.flows.versions.version import open_version
from pairwright.schemas.rows import PreferenceRow
from pairwright.schemas.training import TextVectorsConfig
from pairwright.tasks.store.decision_table import read_decisions
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training.embed_chosen_texts import embed_chosen_texts
from pairwright.tasks.training.freeze_rows import FrozenRows, Needs, freeze_rows
from pairwright.tasks.training.retriever.material import open_material
from tests.fixtures.command import run, words_of

SPLITS = ("train", "validation", "test")


def preferences(copy) -> list[PreferenceRow]:
    rows = pw.open(copy)["preferences"].rows(without=("images", "rejected_images"))
    return [row for row in rows if isinstance(row, PreferenceRow) and row.rejected]


def write(path, *decisions):
    lines = [
        {"key": key, "verdict": verdict, "at": "2026-11-21T11:00:00Z", **more}
        for key, verdict, more in decisions
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_a_file_is_stored_and_what_it_is_not_about_is_named(copy, tmp_path, capsys) -> None:
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


def test_training_uses_edits_and_skips_rejected_rows(copy, qwen, tmp_path, capsys) -> None:
    rows = [row for row in preferences(copy) if row.split == "train"]
    rejected, edited, accepted = rows[:3]
    texts = {"chosen": "A person sees another thing.", "rejected": "Wrong."}
    file = write(
        tmp_path / "d.jsonl",
        (rejected.key, "reject", {}),
        (edited.key, "edit", texts),
        (accepted.key, "accept", {}),
    )
    assert len(pw.open(copy).decide(file).known) == 3
    words = ["train", copy, "--objective", "adpo", "--model", qwen, "--name", "said"]
    settings = {"optimiser.max_steps": 1, "data.eval_split": "", "model.lora.rank": 4}
    assert run(*words, *words_of(settings)) == 0
    place = copy / "runs/said"
    data = json.loads((place / "data.json").read_text())
    assert data["decided"] == {"accept": 1, "edit": 1, "reject": 1}
    assert data["refused"]["rejected by people"] == 1
    frozen = FrozenRows(folder=Folder(str(copy)), file=str(place / "rows.arrow"), split="train")
    keys = frozen.keys()
    assert rejected.key not in keys
    (row,) = frozen.edited().values()
    assert (row.key, row.chosen, row.rejected) == (edited.key, *texts.values())
    assert (row.negatives[-1].text, row.negatives[-1].maker) == (edited.chosen, "before-edit")
    assert len(frozen.read(keys.index(edited.key)).images) == 2
    # The retriever knows the new text by a vector of its own.
    material = open_material(place / "retriever")
    entry = material.entries[material.places[edited.key]]
    assert (entry.chosen, entry.in_pool) == (texts["chosen"], True)
    number = material.pool.texts.index(entry.chosen)
    assert edited.chosen not in material.pool.texts
    (vector,) = embed_chosen_texts([row], TextVectorsConfig())
    vectors = material.features.text_vectors(np.array([number]))
    np.testing.assert_allclose(vectors[0], vector.vector, atol=1e-3)


def test_trainings_may_take_only_what_people_accepted(copy, tmp_path) -> None:
    folder, rows = Folder(str(copy)), preferences(copy)
    trained = [row.key for row in rows if row.split == "train"]
    held_out = {row.key for row in rows if row.split != "train"}
    accepted = [(key, "accept", {}) for key in trained[:3]]
    pw.open(copy).decide(write(tmp_path / "d.jsonl", *accepted))
    with open_version(folder).resolved() as (build, stages):
        planned = next(planned for planned, _ in stages if planned.stage.name == "preferences")
        settings = {"needs": Needs(accepted="train"), "splits": SPLITS}
        decisions = read_decisions(folder)
        file = tmp_path / "rows.arrow"
        refused, _ = freeze_rows(build, planned, file, decisions=decisions, **settings)
    assert {one.key for one in refused} == set(trained[3:])
    assert {one.reason for one in refused} == {"not accepted by people"}
    frozen = [FrozenRows(folder=folder, file=str(file), split=split) for split in SPLITS]
    keys = {key for rows in frozen for key in rows.keys()}  # noqa: SIM118  (no mapping)
    assert keys == held_out | set(trained[:3])


def test_clearing_up_forgets_what_was_said_of_a_removed_image(copy, tmp_path) -> None:
    folder, rows = Folder(str(copy)), preferences(copy)
    gone = rows[0]
    kept = next(row for row in rows if not set(row.image_keys) & set(gone.image_keys))
    file = write(
        tmp_path / "d.jsonl",
        (gone.key, "edit", {"chosen": "Private words."}),
        (kept.key, "accept", {}),
    )
    pw.open(folder.url).decide(file)
    collect_garbage(folder, keep=None, dry_run=False)
    assert len(read_decisions(folder)) == 2
    pw.open(folder.url).remove(keys=[gone.image_keys[0]])
    assert collect_garbage(folder, keep=None, dry_run=False).swept == 1
    assert set(read_decisions(folder).by_key) == {kept.key}
    assert not any(b"Private" in path.read_bytes() for path in (copy / "decisions").iterdir())
