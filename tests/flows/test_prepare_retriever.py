"""From a real dataset to a retriever that proposes, goes on after a reload, and mines a table."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from pairwright.flows.prepare_training import choose_text_vectors, mine_table, prepare_retriever
from pairwright.flows.version import open_present, open_version
from pairwright.schemas.claims import CLAIMS, may_hold
from pairwright.schemas.config import EmbeddingConfig
from pairwright.schemas.encoders import ClipConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.plain_text import plain_text
from pairwright.schemas.rows import DifferenceRow, ImageRow, PreferenceRow
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.snapshot import read_live
from pairwright.tasks.training.freeze_rows import FILE, freeze_rows
from pairwright.tasks.training.losses import TEXTS, needs_of
from pairwright.tasks.training.retriever.adversary import NETWORK, PAGE, open_adversary
from pairwright.tasks.training.retriever.material import open_material

CONFIG = TrainConfig.model_validate(
    {"objective": "adpo", "adpo": {"projection_dim": 16, "candidates": 8, "samples": 2, "warmup_steps": 20}}
)


@pytest.fixture(scope="module")
def folder(dataset: Path) -> Folder:
    return Folder(str(dataset))


def rows_of(folder: Folder, table: str, kind: type) -> list:
    with open_present(folder).settled() as (build, stages):
        planned = next(one for one, _ in stages if one.stage.name == table)
        return list(read_live(build, planned, kind, without=("image", "images", "rejected_images")))


@pytest.fixture(scope="module")
def run(folder: Folder) -> Path:
    """Return a run's folder whose rows and retriever are frozen."""
    place = Path(folder.path("runs/first"))
    place.mkdir(parents=True)
    with open_present(folder).settled() as (build, stages):
        planned = next(one for one, _ in stages if one.stage.name == "preferences")
        needs = needs_of(CONFIG)
        freeze_rows(build, planned, place / FILE, needs=needs, splits=("train", "validation"))
    prepare_retriever(open_version(folder), CONFIG, place)
    return place


def tokenize(text: str) -> tuple[int, ...]:
    return tuple(text.encode())


def opened(run: Path, folder: Folder, config: TrainConfig = CONFIG):
    return open_adversary(run / "retriever", config, rows=run / FILE, dataset=folder, tokenize=tokenize)


def test_what_is_frozen_is_what_the_tables_hold(run: Path, folder: Folder) -> None:
    material = open_material(run / "retriever")
    preferences = {row.key: row for row in rows_of(folder, "preferences", PreferenceRow)}
    differences = {row.subject: row for row in rows_of(folder, "differences", DifferenceRow)}
    wanted = {key for key, row in preferences.items() if row.split in ("train", "validation")}
    assert {entry.key for entry in material.entries} == wanted
    held = {plain_text(row.chosen) for row in preferences.values() if row.split != "train"}
    for entry in material.entries:
        row = preferences[entry.key]
        assert (entry.pair, entry.chosen, entry.images) == (row.subject, row.chosen, row.image_keys)
        assert entry.in_pool == (row.split == "train" and plain_text(row.chosen) not in held)
        assert entry.no_change == differences[row.subject].no_change
    train = {plain_text(row.chosen) for row in preferences.values() if row.split == "train"} - held
    assert {plain_text(text) for text in material.pool.texts} == train


def batches(keys: list[str]) -> Iterator[list[str]]:
    for step in range(6):
        yield [keys[(3 * step + n) % len(keys)] for n in range(4)]


def work(adversary, some: list[list[str]]) -> list:
    """Propose and learn; return what was proposed and said."""
    seen = []
    for step, keys in enumerate(some):
        answers = adversary.propose(keys)
        rewards = torch.tensor([[len(one.ids) % 7 / 10 for one in own] or [torch.nan] * 2 for own in answers])
        seen.append((answers, adversary.learn(rewards, step=step % 2 == 1)))
    return seen


def test_it_goes_on_as_if_it_had_not_been_stopped(run: Path, folder: Folder, tmp_path: Path) -> None:
    keys = [entry.key for entry in open_material(run / "retriever").entries]
    some = list(batches(keys))
    whole, first = opened(run, folder), opened(run, folder)
    expected = work(whole, some)
    found = work(first, some[:4])
    first.save(tmp_path)
    second = opened(run, folder)
    second.load(tmp_path)
    found += work(second, some[4:])
    assert found == expected
    for name, weight in whole.retriever.encoder.network.state_dict().items():
        assert torch.equal(weight, second.retriever.encoder.network.state_dict()[name])
    answers, said = expected[-1]
    assert {answer.column for own in answers for answer in own} == {TEXTS, TEXTS + 1}
    assert all(tokenize(text) for text in whole.retriever.pool.texts)
    wanted = ("entropy", "entropy share", "effective", "candidates", "tau", "scale", "reward", "loss")
    assert {f"retriever/{name}" for name in wanted} <= said.keys()


@pytest.fixture(scope="module")
def trained(run: Path, folder: Folder) -> Path:
    adversary = opened(run, folder)
    keys = [entry.key for entry in open_material(run / "retriever").entries]
    work(adversary, list(batches(keys)))
    adversary.publish(run / "retriever")
    assert (run / "retriever" / PAGE).exists()
    return run / "retriever" / NETWORK


def mined_rows(folder: Folder, beside: list) -> dict[str, PreferenceRow]:
    with open_version(folder).settled(beside) as (build, _):
        return {row.subject: row for row in read_live(build, beside[-1], PreferenceRow, without=())}


def test_mined_negatives_are_of_the_pool_and_not_true(run: Path, folder: Folder, trained: Path) -> None:
    beside = mine_table(open_version(folder), trained)
    mined, material = mined_rows(folder, beside), open_material(run / "retriever")
    before, checked = {row.subject: row for row in rows_of(folder, "preferences", PreferenceRow)}, 0
    images = {row.key: row.graph for row in rows_of(folder, "images", ImageRow)}
    assert mined.keys() == before.keys()
    for pair, row in mined.items():
        old = before[pair]
        assert (row.rejected_maker, row.chosen, row.split) == ("mined", old.chosen, old.split)
        assert len(row.images) == len(row.image_keys)
        assert all(row.images)
        if plain_text(old.rejected) != plain_text(row.rejected):
            assert row.negatives[0].text == old.rejected
            assert row.negatives[0].maker == old.rejected_maker
        assert all(plain_text(one.text) != plain_text(row.rejected) for one in row.negatives)
        if old.key in material.places:
            place, number = np.array([material.places[old.key]]), np.array([[material.pool.texts.index(row.rejected)]])
            assert not material.pool.excluded(place, number).any()
            first, second = (graph for key in old.image_keys if (graph := images[key]))
            assert not may_hold(CLAIMS.validate_json(row.rejected_claims), (first, second))
            assert "unchecked" not in row.rejected_note
            checked += 1
    assert checked > 3
    assert mine_table(open_version(folder), trained)[-1] == beside[-1]


def test_another_retriever_s_table_is_another(folder: Folder, trained: Path, tmp_path: Path) -> None:
    beside = mine_table(open_version(folder), trained)
    moved = Path(shutil.copy(trained, tmp_path / "copy.safetensors"))
    assert mine_table(open_version(folder), moved)[-1].table == beside[-1].table, "the hash counts, not the place"
    with pytest.raises(ModelError, match=r"mined\.retriever"):
        mine_table(open_version(folder), tmp_path / "none")


def test_clip4idc_is_told_which_weights_and_sees_the_frozen_images(run: Path, folder: Folder, tmp_path: Path) -> None:
    from tests.fixtures.checkpoints import READING_CLIP, write_clip_folder

    clip = ClipConfig(checkpoint=str(write_clip_folder(tmp_path / "clip", architecture=READING_CLIP)))
    frozen = tmp_path / "retriever"
    shutil.copytree(run / "retriever", frozen)
    (frozen / "clip.json").write_text(clip.model_dump_json())
    config = CONFIG.model_copy(
        update={"adpo": CONFIG.adpo.model_copy(update={"encoder": "clip4idc", "warmup_steps": 0, "candidates": 3})}
    )
    adversary = open_adversary(frozen, config, rows=run / FILE, dataset=folder, tokenize=tokenize)
    keys = [entry.key for entry in open_material(frozen).entries][:3]
    seen = work(adversary, [keys])
    assert seen[0][1]["retriever/entropy"] >= 0
    adversary.publish(tmp_path)
    with pytest.raises(ModelError, match="clip4idc"):
        mine_table(open_version(folder), tmp_path / NETWORK)


def test_texts_have_the_space_of_the_images_where_that_is_clip_s() -> None:
    assert choose_text_vectors(EmbeddingConfig()).encoder == "words"
    chosen = choose_text_vectors(EmbeddingConfig(embedders=("dinov2", "clip"), clip=ClipConfig(checkpoint="x")))
    assert (chosen.encoder, chosen.clip.checkpoint) == ("clip", "x")
