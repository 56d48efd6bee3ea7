"""Whole trainings with differential perception: pairs of any sizes, what goes on, what is
refused."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pairwright.schemas.rows import make_key
from pairwright.schemas.training import NAME, WEIGHTS
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training import fit_preferences
from pairwright.tasks.training.collate import ExampleRows, Loaded, load_example
from pairwright.tasks.training.find_model import TUNED
from pairwright.tasks.training.freeze_rows import Refused, RefusedRowError, make_example
from pairwright.tasks.training.load_model import load_model
from pairwright.tasks.training.losses import needs_of
from pairwright.tasks.training.runs import Run
from tests.fixtures.in_ranks import run_in_ranks
from tests.fixtures.preferences_to_train import encoded, preference
from tests.fixtures.runs_to_train import curve, settings, train_run, write_run

pytestmark = pytest.mark.usefixtures("no_samples")
SIZES = ((56, 84), (112, 56))
MODEL = "model.safetensors"


def pair(number, sizes=SIZES, split="train"):
    """Return a row whose images have different sizes."""
    images = tuple(encoded(10 * number + position, size) for position, size in enumerate(sizes))
    keys = tuple(make_key(image) for image in images)
    return replace(preference(number), images=images, image_keys=keys, split=split)


def rows(count):
    return [*(pair(number) for number in range(count - 1)), pair(count - 1, split="validation")]


def with_module(start, tuning="lora", **optimiser):
    differential = {
        "train_vision": True,
        "vision_tuning": "full",
        "differential": {"enabled": True},
    }
    return settings(
        "sft",
        start,
        model={"tuning": tuning, **differential},
        optimiser={"max_steps": 3, "vision_learning_rate": 5e-4, **optimiser},
        output={"merge_adapters": True, "save_steps": 1},
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("family", "tuning", "sharded"),
    [
        ("qwen2_vl", "lora", True),
        ("qwen2_vl", "full", True),
        ("llava_onevision", "lora", True),
        ("qwen2_vl", "lora", False),
    ],
)
def test_two_processes_train_like_one(checkpoint, family, tuning, sharded, tmp_path):
    """With FSDP2 and without it, the last step's single row, too; a run that was stopped goes
    on."""
    start, names = checkpoint(family), [MODEL, WEIGHTS]
    names += [f"adapters/{TUNED}"] if tuning == "lora" else []
    two, whole = (with_module(start, tuning, per_device_train_batch_size=batch) for batch in (1, 2))
    job = write_run(tmp_path / "two", two, rows=rows(6))
    run_in_ranks(fit_preferences.fit_preferences, [job], sharded=sharded)
    assert (job.run.checkpoint(3) / "pytorch_model_fsdp_0").exists() == sharded
    alone = train_run(tmp_path / "one", whole, rows=rows(6))
    for name in ("loss", "grad_norm"):
        assert curve(job.run, name) == pytest.approx(curve(alone.run, name), rel=1e-4), name
    for name in names:
        weights, expected = (load_file(each.run.model / name) for each in (job, alone))
        torch.testing.assert_close(weights, expected, rtol=1e-3, atol=1e-3)

    stopped = stop_after_two_steps(job, tmp_path / "stopped")
    run_in_ranks(fit_preferences.fit_preferences, [stopped], sharded=sharded)
    assert curve(stopped.run) == curve(job.run)
    for name in names:
        assert (stopped.run.model / name).read_bytes() == (job.run.model / name).read_bytes(), name
    assert load_file(job.run.model / WEIGHTS)["out.weight"].any(), "it began as zeros"
    assert_moved(start, job, frozen=("embed_tokens", "norm") if tuning == "lora" else ())


def stop_after_two_steps(job, root):
    """Return a copy of a finished run as if it had been killed in its third step."""
    shutil.copytree(Path(job.dataset.path("")), root)
    run = Run(root / "runs" / job.run.folder.name)
    shutil.rmtree(run.model)
    shutil.rmtree(run.checkpoint(3))
    return replace(job, dataset=Folder(str(root)), run=run)


SEEING = {
    "qwen2_vl": ("visual.patch_embed", "visual.merger"),
    "llava_onevision": ("vision_tower", "projector"),
}


def assert_moved(start, job, *, frozen):
    """Check that all that sees has moved, and of the language model nothing that is frozen."""
    before, after = (
        load_model(folder, job.config.model, dtype=torch.float32).state_dict()
        for folder in (start, job.run.model)
    )
    moved = {name for name, weight in before.items() if (weight != after[name]).any()}
    for part in SEEING[start.name]:
        assert any(part in name for name in moved), part
    language = [name for name in moved if "language_model" in name]
    assert not [name for name in language if any(part in name for part in frozen)]


def test_two_rates_are_two_groups(qwen, tmp_path):
    job = write_run(tmp_path, with_module(qwen, weight_decay=0.1), rows=rows(7))
    trainer = fit_preferences.make_trainer(job)
    groups = trainer.create_optimizer().param_groups
    rates = {(group["lr"], group["weight_decay"]) for group in groups}
    assert rates == {(2e-3, 0), (2e-3, 0.1), (5e-4, 0), (5e-4, 0.1)}
    model = trainer.accelerator.unwrap_model(trainer.model)
    names = {id(weight): name for name, weight in model.named_parameters()}
    fast, slow = (
        {names[id(weight)] for group in groups if group["lr"] == rate for weight in group["params"]}
        for rate in (2e-3, 5e-4)
    )
    assert all(".visual." in name and ".merger." not in name for name in slow)
    assert {name for name in names.values() if f".{NAME}." in name} <= fast


@pytest.mark.parametrize("images", [0, 1, 3])
def test_rows_that_are_no_pairs_are_refused(images, qwen):
    """Of three images one has nothing to be compared with."""
    with pytest.raises(RefusedRowError, match=f"pairs: {images}"):
        make_example(preference(0, images=images), needs_of(with_module(qwen)))


def test_four_images_are_two_pairs(qwen):
    example = make_example(preference(0, images=4), needs_of(with_module(qwen)))
    assert len(load_example(example, 10_000, pairs=True).images) == 4


def test_rows_of_a_run_that_are_no_pairs_are_refused(qwen, tmp_path):
    config = with_module(qwen)
    job = write_run(tmp_path, config, rows=[preference(n, images=1 + n % 3) for n in range(6)])
    examples = ExampleRows(job.frozen_rows("train"), needs_of(config), 10_000)
    assert [type(examples[position]) for position in range(3)] == [Refused, Loaded, Refused]


@pytest.mark.parametrize(
    ("most", "pairs", "sizes"),
    [
        (1 << 20, True, [(70, 60)] * 2),  # roots of 100 * 50 and of 40 * 90
        (1 << 20, False, [(100, 40), (50, 90)]),
        (1000, True, [(33, 28)] * 2),  # of 50 x 20 and of 23 x 42
    ],
)
def test_both_images_of_a_pair_get_one_size(most, pairs, sizes, qwen):
    example = make_example(pair(0, [(100, 40), (50, 90)]), needs_of(with_module(qwen)))
    assert [image.size for image in load_example(example, most, pairs=pairs).images] == sizes
