"""Triplets for image editing: both directions, failed edits, the columns that trainers read."""

from dataclasses import replace

import datasets
import numpy as np
import pytest

from pairwright.schemas.rows import PairRow, RemovalScore
from pairwright.schemas.scene import SceneChange
from pairwright.tasks.export.paired_row import find_edits
from tests.fixtures.exports import export_some, preference, rows_of
from tests.fixtures.graphs import graph, pair_row

ROW = preference(1, rejected_images=2)
NO_GRAPHS = (None, None)


def test_diffusers_reads_the_first_three_columns(tmp_path, offline) -> None:
    """``train_instruct_pix2pix.py`` has these names as defaults, and resizes RGB images so."""
    export_some(tmp_path / "out", [ROW], form="edit")
    rows = datasets.load_dataset(str(tmp_path / "out"), cache_dir=offline)["train"]
    assert rows.column_names[:3] == ["input_image", "edit_prompt", "edited_image"]
    for column in ("input_image", "edited_image"):
        images = [np.array(image.convert("RGB").resize((256, 256))) for image in rows[column]]
        assert np.concatenate(images).shape == (2 * 256, 256, 3)
    there, back = rows_of(tmp_path / "out")
    first, second = ROW.images
    assert (there["input_image"]["bytes"], there["edited_image"]["bytes"]) == (first, second)
    assert (back["input_image"]["bytes"], back["edited_image"]["bytes"]) == (second, first)
    assert [there["edit_prompt"], back["edit_prompt"]] == ["Add a cup.", "Remove a cup."]
    failed = [row["failed_image"] and row["failed_image"]["bytes"] for row in (there, back)]
    assert failed == [
        rejected if rejected != image else None
        for rejected, image in zip(ROW.rejected_images[::-1], ROW.images[::-1], strict=True)
    ]


def test_omniedit_has_its_published_columns(tmp_path) -> None:
    """Those of TIGER-Lab/OmniEdit-Filtered-1.2M, without the scores of its judges."""
    export_some(tmp_path, [replace(ROW, rejected_images=())], form="omniedit")
    there, back = rows_of(tmp_path)
    published = {"omni_edit_id", "task", "src_img", "edited_img", "edited_prompt_list"}
    assert {*published, "width", "height"} <= there.keys()
    assert (there["task"], back["task"]) == ("addition", "removal")
    assert there["edited_prompt_list"] == ["Add a cup."]
    assert (there["width"], there["height"], there["failed_img"]) == (56, 56, None)


def test_a_removal_behind_a_rejected_image_is_an_edit(tmp_path) -> None:
    """The second image was taken without its lamp; another removal was not taken."""
    scores = tuple(
        RemovalScore(removal=key, tag=tag, side=1, score=0.5, chosen=chosen)
        for key, tag, chosen in (("r1", "orange lamp", True), ("r2", "cup", False))
    )
    changes = {"edits": (), "rejected_image_maker": "removal", "removal_scores": scores}
    export_some(tmp_path, [replace(ROW, **changes)], form="edit")
    gone, back = rows_of(tmp_path)
    with_lamp, without = ROW.images[1], ROW.rejected_images[1]
    assert (gone["edit_prompt"], gone["task"]) == ("Remove the orange lamp.", "removal")
    assert (gone["input_image"]["bytes"], gone["edited_image"]["bytes"]) == (with_lamp, without)
    assert (back["edit_prompt"], back["task"]) == ("Add an orange lamp.", "addition")
    assert (back["input_image"]["bytes"], back["edited_image"]["bytes"]) == (without, with_lamp)


@pytest.mark.parametrize(
    ("instruction", "edits"),
    [
        ("remove the dog", [(0, "remove the dog", "removal"), (1, "Add the dog.", "addition")]),
        ("Add a hat.", [(0, "Add a hat.", "addition"), (1, "Remove a hat.", "removal")]),
        ("remove the dog and the cat", [(0, "remove the dog and the cat", "removal")]),
        ("make it snow", [(0, "make it snow", "edit")]),
    ],
)
def test_a_removal_gives_both_directions(instruction, edits) -> None:
    pair = replace(pair_row("a", "b"), instruction=instruction, origin="edit")
    found = find_edits(pair, NO_GRAPHS, ["jsonl-pairs"] * 2)
    assert [(edit.source, edit.instruction, edit.task) for edit in found] == edits


def test_people_s_requests_are_instructions() -> None:
    pair = replace(pair_row("a", "b"), human_differences=("crop it", "remove the text"))
    found = find_edits(pair, NO_GRAPHS, ["image-editing-request"] * 2)
    texts = [(edit.source, edit.instruction) for edit in found]
    assert texts == [(0, "crop it"), (0, "remove the text"), (1, "Add the text.")]
    assert find_edits(pair, NO_GRAPHS, ["spot-the-diff"] * 2) == ()


def scenes(before=(), after=()) -> tuple[PairRow, tuple]:
    return pair_row("a", "b"), (graph(changes=before), graph(changes=after))


def test_one_known_change_is_an_edit() -> None:
    gone = SceneChange(type="disappearance", object_id="1", before="small red ball")
    pair, graphs = scenes(before=(gone,))
    found = find_edits(pair, graphs, ["scenes"] * 2)
    assert [(edit.source, edit.instruction) for edit in found] == [
        (1, "Remove the small red ball."),
        (0, "Add a small red ball."),
    ]
    other = SceneChange(type="substitution", object_id="2", before="red mug", after="orange cone")
    (first, second) = find_edits(*scenes(after=(other,)), ["scenes"] * 2)
    assert first.instruction == "Replace the red mug with an orange cone."
    assert second.instruction == "Replace the orange cone with a red mug."


def test_another_viewpoint_is_no_edit() -> None:
    new = SceneChange(type="addition", object_id="1", after="cup")
    turned = SceneChange(type="viewpoint", before="from the left", after="from the right")
    assert find_edits(*scenes(after=(new, turned)), ["scenes"] * 2) == ()
    assert find_edits(*scenes(after=(new,)), ["scenes"] * 2) != ()
