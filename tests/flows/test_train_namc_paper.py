"""``pairwright train --objective namc --size paper`` on a built dataset, with tiny models in the
true layouts."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from pairwright.flows.training.make_train_config import make_config
from pairwright.flows.training.train_model import prepare
from pairwright.flows.versions.version import open_version
from pairwright.schemas.errors import ModelError
from pairwright.schemas.namc_config import VqganConfig
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.images.decode import decode_rgb
from pairwright.tasks.models.namc_places import CROP, load_codes, load_grids
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training.freeze_rows import FrozenRows
from pairwright.tasks.training.namc.feature_tables import CODES
from pairwright.tasks.training.namc.train_namc import open_batches, open_captioner
from pairwright.tasks.training.objective import Job
from pairwright.tasks.training.runs import PLACES, Run
from tests.fixtures.benchmarks import ask_about_a_pair
from tests.fixtures.command import run, words_of
from tests.fixtures.namc_models import write_models

FAST = {
    "namc.hidden_size": 64,
    "optimiser.max_steps": 2,
    "optimiser.per_device_train_batch_size": 2,
    "optimiser.gradient_accumulation_steps": 2,
    "output.logging_steps": 1,
    "output.save_steps": 1,
    "output.keep_checkpoints": "true",
    "data.eval_split": "train",
    "data.max_eval_rows": 2,
}
ROWS = [0, 3, 1]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_models(tmp_path_factory.mktemp("models"))


def settings(models: list[str]) -> list[str]:
    return ["namc.size=paper", *models, *(f"{name}={value}" for name, value in FAST.items())]


def made(dataset: Path) -> dict[str, list[str]]:
    """Return the tables beside the dataset's, by stage."""
    found = (dataset / "tables" / name for name in ("grids", "codes"))
    return {place.name: sorted(one.name for one in place.iterdir()) for place in found}


def read_lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def prepared(dataset: Path, config: TrainConfig, name: str) -> Job:
    folder, place = Folder(str(dataset)), Run(dataset / "runs" / name)
    with place.locked():
        ready = prepare(open_version(folder), config, place)
    return Job(run=place, config=ready.config, dataset=folder, start=ready.start)


def test_what_is_learnt_from_is_what_the_models_say(
    dataset: Path, models: list[str], tmp_path: Path
) -> None:
    """Of rows in any order: features, codes, pixels."""
    job = prepared(dataset, make_config("namc", settings(models)), "looked")
    captioner = open_captioner(job)
    batches = open_batches(job, captioner)
    batch = batches.make(ROWS)
    rows = FrozenRows(folder=job.dataset, file=str(job.run.rows), split="train")
    keys = [batches.texts[row].key for row in ROWS]
    shown = {row.key: row.images for row in map(rows.read, range(len(rows)))}
    crops = [CROP(decode_rgb(data)) for key in keys for data in shown[key]]
    own = job.config.namc
    grids = load_grids(own.cnn.model_dump_json()).encode(crops).reshape(batch.features.shape)
    assert np.abs(batch.features.numpy() - grids).max() < 2e-2 * np.abs(grids).max()
    codes = load_codes(own.vqgan.model_dump_json()).encode(crops).reshape(batch.codes.shape)
    assert (batch.codes.numpy() == codes).mean() > 0.99
    noise = captioner.model.noise
    assert noise is not None
    numbers = torch.from_numpy(np.stack(crops)).float() / 255
    mean, std = (torch.tensor(noise.clip.visual.preprocess_cfg[name]) for name in ("mean", "std"))
    pixels = ((numbers - mean) / std).permute(0, 3, 1, 2)
    assert torch.allclose(batch.pixels.flatten(0, 1), pixels, atol=1e-5)
    assert sorted(path.name for path in (job.run.folder / PLACES).iterdir()) == [
        "about.json",
        "codes.npy",
        "grids.npy",
    ]
    tables = made(dataset)
    assert {name: len(marks) for name, marks in tables.items()} == {"grids": 1, "codes": 1}
    (tmp_path / "other.ckpt").write_bytes(b"another")
    planned = open_version(job.dataset).plan(
        CODES, VqganConfig(checkpoint=str(tmp_path / "other.ckpt"))
    )
    assert Path(planned.table).name not in tables["codes"]


@pytest.mark.slow
def test_it_is_trained_gone_on_with_scored_and_tuned(
    dataset: Path,
    models: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    sets = [word for setting in models for word in ("--set", setting)]
    words = ["train", dataset, "--objective", "namc", "--size", "paper", *sets, *words_of(FAST)]
    assert run(*words) == 0
    place = dataset / "runs/namc"
    assert "namc · paper" in (place / "report/index.html").read_text()
    assert len(read_lines(place / "answers/predictions.jsonl")) == 2
    assert not (place / PLACES).exists()
    about = json.loads((place / "checkpoint/namc.json").read_text())
    assert (about["sizes"]["features"], about["sizes"]["codes"]) == (256, 40)
    first = (place / "checkpoint/model.safetensors").read_bytes()
    shutil.rmtree(place / "checkpoint")
    shutil.rmtree(place / "checkpoints/checkpoint-2")
    assert run(*words) == 0
    assert (place / "checkpoint/model.safetensors").read_bytes() == first
    capsys.readouterr()
    assert run(*words) == 0
    assert "finished" in capsys.readouterr().out
    assert ask_about_a_pair(place, tmp_path)["state"] == "answered"
    tuned = [
        "train",
        dataset,
        "--objective",
        "namc",
        "--size",
        "paper",
        "--from",
        "namc",
        "--name",
        "tuned",
    ]
    moved = shutil.copy(
        next(one for one in models if "resnet18.pth" in one).partition("=")[2],
        tmp_path / "moved.pth",
    )
    own = {"namc.cnn.model": "resnet18", "namc.cnn.checkpoint": moved}
    assert run(*tuned, *words_of(FAST | own)) == 0
    about = json.loads((dataset / "runs/tuned/checkpoint/namc.json").read_text())
    assert about["cnn"]["checkpoint"] == str(moved), (
        "what it was tuned with, not what it began with"
    )


def test_a_missing_model_is_named(
    dataset: Path, models: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its file, and what fetches it; nothing is fetched, and the run has not begun."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for lacks, said in (
        ("namc.clip.checkpoint=", r"namc\.clip\.pretrained|namc\.clip\.model"),
        ("namc.cnn.checkpoint=", r"namc\.cnn.*timm/resnet18"),
        ("namc.vqgan.checkpoint=", r"namc\.vqgan\.checkpoint: .*vqgan_imagenet_f16_1024"),
        ("namc.vocabulary.checkpoint=/nowhere", r"namc\.vocabulary\.checkpoint: /nowhere"),
    ):
        with pytest.raises(ModelError, match=said):
            prepared(dataset, make_config("namc", [*settings(models), lacks]), "lacking")
    with pytest.raises(
        ModelError, match=r"hf download timm/resnet101\.tv_in1k model\.safetensors$"
    ):
        prepared(dataset, make_config("namc", ["namc.size=paper"]), "lacking")
    assert not (dataset / "runs/lacking").exists()
