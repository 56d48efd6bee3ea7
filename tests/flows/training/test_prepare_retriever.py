"""From a real dataset to the data of a retriever."""

from pathlib import Path

import pytest

from pairwright.flows.training.version_tables import VersionTables
from pairwright.flows.versions.version import open_present, open_version
from pairwright.schemas.config import EmbeddingConfig
from pairwright.schemas.encoder_config import ClipConfig
from pairwright.schemas.plain_text import plain_text
from pairwright.schemas.rows import DifferenceRow, PreferenceRow
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.snapshot import find_live
from pairwright.tasks.training.freeze_rows import FILE, freeze_rows
from pairwright.tasks.training.losses import needs_of
from pairwright.tasks.training.retriever.material import open_material
from pairwright.tasks.training.retriever.prepare_retriever import (
    choose_text_vectors,
    prepare_retriever,
)
from pairwright.tasks.training.runs import Run

CONFIG = TrainConfig.model_validate(
    {
        "objective": "adpo",
        "adpo": {"projection_dim": 16, "candidates": 8, "samples": 2, "warmup_steps": 20},
    }
)


@pytest.fixture(scope="module")
def folder(dataset):
    return Folder(str(dataset))


def rows_of(folder, table, kind):
    with open_present(folder).resolved() as (build, stages):
        planned = next(each for each, _ in stages if each.stage.name == table)
        return find_live(build, planned, kind, without=("image", "images", "rejected_images"))


@pytest.fixture(scope="module")
def run(folder):
    """Return a run's folder whose rows and retriever are frozen."""
    run_folder = Path(folder.path("runs/first"))
    run_folder.mkdir(parents=True)
    with open_present(folder).resolved() as (build, stages):
        planned = next(each for each, _ in stages if each.stage.name == "preferences")
        needs = needs_of(CONFIG)
        freeze_rows(build, planned, run_folder / FILE, needs=needs, splits=("train", "validation"))
    prepare_retriever(CONFIG, Run(run_folder), VersionTables(open_version(folder)))
    return run_folder


def test_what_is_frozen_is_what_the_tables_hold(run, folder):
    material = open_material(run / "retriever")
    preferences = {row.key: row for row in rows_of(folder, "preferences", PreferenceRow)}
    differences = {row.subject: row for row in rows_of(folder, "differences", DifferenceRow)}
    expected = {key for key, row in preferences.items() if row.split in ("train", "validation")}
    assert {entry.key for entry in material.entries} == expected
    held = {plain_text(row.chosen) for row in preferences.values() if row.split != "train"}
    for entry in material.entries:
        row = preferences[entry.key]
        assert (entry.pair, entry.chosen, entry.images) == (row.subject, row.chosen, row.image_keys)
        assert entry.in_pool == (row.split == "train" and plain_text(row.chosen) not in held)
        assert entry.no_change == differences[row.subject].no_change
    train = {plain_text(row.chosen) for row in preferences.values() if row.split == "train"} - held
    assert {plain_text(text) for text in material.pool.texts} == train


def test_texts_have_the_space_of_the_images_where_that_is_clip_s():
    assert choose_text_vectors(EmbeddingConfig()).encoder == "words"
    chosen = choose_text_vectors(
        EmbeddingConfig(embedders=("dinov2", "clip"), clip=ClipConfig(checkpoint="x"))
    )
    assert (chosen.encoder, chosen.clip.checkpoint) == ("clip", "x")
