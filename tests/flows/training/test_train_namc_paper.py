"""``pairwright train --objective namc --size paper`` on a built dataset, with tiny models in the
true layouts."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from pairwright.flows.training.make_train_config import make_config
from pairwright.flows.training.train_model import prepare_run
from pairwright.flows.versions.version import open_version
from pairwright.schemas.errors import ModelError
from pairwright.schemas.namc_config import VqganConfig
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
from tests.fixtures.runs_to_train import read_lines

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
TRAIN = ("--objective", "namc", "--size", "paper")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("models"))


def prepared(dataset, name, *settings):
    config = make_config("namc", ["namc.size=paper", *settings])
    folder, started = Folder(str(dataset)), Run(dataset / "runs" / name)
    with started.lock_run():
        ready = prepare_run(open_version(folder), config, started)
    return Job(run=started, config=ready.config, dataset=folder, start=ready.start)


def test_what_is_learnt_from_is_what_the_models_say(dataset, models, tmp_path):
    """Of rows in any order: features, codes, pixels."""
    job = prepared(dataset, "looked", *models, *(f"{key}={value}" for key, value in FAST.items()))
    captioner = open_captioner(job)
    batches = open_batches(job, captioner)
    batch = batches.make_batch(ROWS)
    rows = FrozenRows(folder=job.dataset, file=str(job.run.rows), split="train")
    images = {row.key: row.images for row in map(rows.read, range(len(rows)))}
    keys = [batches.texts[row].key for row in ROWS]
    crops = [CROP(decode_rgb(data)) for key in keys for data in images[key]]
    config = job.config.namc
    grids = load_grids(config.cnn.model_dump_json()).encode(crops).reshape(batch.features.shape)
    assert np.abs(batch.features.numpy() - grids).max() < 2e-2 * np.abs(grids).max()
    codes = load_codes(config.vqgan.model_dump_json()).encode(crops).reshape(batch.codes.shape)
    assert (batch.codes.numpy() == codes).mean() > 0.99
    about = captioner.model.noise.clip.visual.preprocess_cfg
    mean, std = (torch.tensor(about[name]) for name in ("mean", "std"))
    pixels = (torch.from_numpy(np.stack(crops)).float() / 255 - mean) / std
    assert torch.allclose(batch.pixels.flatten(0, 1), pixels.permute(0, 3, 1, 2), atol=1e-5)
    files = sorted(path.name for path in (job.run.folder / PLACES).iterdir())
    assert files == ["about.json", "codes.npy", "grids.npy"]

    tables = {name: list((dataset / "tables" / name).iterdir()) for name in ("grids", "codes")}
    assert [len(parts) for parts in tables.values()] == [1, 1]
    (tmp_path / "other.ckpt").write_bytes(b"another")
    other = VqganConfig(checkpoint=str(tmp_path / "other.ckpt"))
    planned = open_version(Folder(str(dataset))).plan_extra(CODES, other)
    assert Path(planned.table_path).name != tables["codes"][0].name


@pytest.mark.slow
def test_it_is_trained_gone_on_with_scored_and_tuned(
    dataset, models, tmp_path, monkeypatch, capsys
):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    command = ["train", dataset, *TRAIN, *words_of(models), *words_of(FAST)]
    assert run(*command) == 0
    trained = Run(dataset / "runs/namc")
    weights = trained.model / "model.safetensors"
    assert "namc · paper" in (trained.folder / "report/index.html").read_text()
    assert len(read_lines(trained.answers / "predictions.jsonl")) == 2
    assert not (trained.folder / PLACES).exists()
    sizes = json.loads((trained.model / "namc.json").read_text())["sizes"]
    assert (sizes["features"], sizes["codes"]) == (256, 40)
    first = weights.read_bytes()
    shutil.rmtree(trained.model)
    shutil.rmtree(trained.checkpoint(2))
    assert run(*command) == 0
    assert weights.read_bytes() == first
    capsys.readouterr()
    assert run(*command) == 0
    assert "finished" in capsys.readouterr().out
    assert ask_about_a_pair(trained.folder, tmp_path)["state"] == "answered"
    (cnn,) = (setting.partition("=")[2] for setting in models if "resnet18.pth" in setting)
    moved = shutil.copy(cnn, tmp_path / "moved.pth")
    own = {"namc.cnn.model": "resnet18", "namc.cnn.checkpoint": moved}
    tuned = ["train", dataset, *TRAIN, "--from", "namc", "--name", "tuned"]
    assert run(*tuned, *words_of(FAST | own)) == 0
    about = json.loads((dataset / "runs/tuned/checkpoint/namc.json").read_text())
    assert about["cnn"]["checkpoint"] == str(moved), "what it was tuned with, not began with"


@pytest.mark.parametrize(
    ("lacking", "what"),
    [
        ("namc.clip.checkpoint=", r"namc\.clip\.pretrained|namc\.clip\.model"),
        ("namc.cnn.checkpoint=", r"namc\.cnn.*timm/resnet18"),
        ("namc.vqgan.checkpoint=", r"namc\.vqgan\.checkpoint: .*vqgan_imagenet_f16_1024"),
        ("namc.vocabulary.checkpoint=/nowhere", r"namc\.vocabulary\.checkpoint: /nowhere"),
    ],
)
def test_a_missing_model_is_named(lacking, what, dataset, models, monkeypatch):
    """With its file, and what fetches it; nothing is fetched, and the run has not begun."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match=what):
        prepared(dataset, "lacking", *models, lacking)
    assert not (dataset / "runs/lacking").exists()


def test_the_first_missing_model_names_what_fetches_it(dataset, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    command = r"hf download timm/resnet101\.tv_in1k model\.safetensors$"
    with pytest.raises(ModelError, match=command):
        prepared(dataset, "lacking")
    assert not (dataset / "runs/lacking").exists()
