"""Whole trainings with differential perception: pairs of any sizes, what goes on, what is
refused."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from pairwright.schemas.rows import PreferenceRow, make_key
from pairwright.schemas.training import NAME, WEIGHTS, TrainConfig
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training import fit_preferences
from pairwright.tasks.training.collate import ExampleRows, Loaded, load_example
from pairwright.tasks.training.find_model import TUNED
from pairwright.tasks.training.freeze_rows import Refused, RefusedRowError, make_example
from pairwright.tasks.training.load_model import load_model
from pairwright.tasks.training.losses import needs_of
from pairwright.tasks.training.objective import Job
from pairwright.tasks.training.runs import Run
from tests.fixtures.in_ranks import run_in_ranks
from tests.fixtures.preferences_to_train import encoded, preference
from tests.fixtures.runs_to_train import curve, settings, write_run

pytestmark = pytest.mark.usefixtures("no_samples")
SIZES = ((56, 84), (112, 56))


def rows(count: int = 7) -> list[PreferenceRow]:
    """Return pairs whose images have different sizes, the last one held out."""
    found: list[PreferenceRow] = []
    for n in range(count):
        images = tuple(encoded(10 * n + place, size) for place, size in enumerate(SIZES))
        row = replace(
            preference(n), images=images, image_keys=tuple(make_key(image) for image in images)
        )
        found.append(replace(row, split="train" if n < count - 1 else "validation"))
    return found


def with_module(start: Path, **values: Any) -> TrainConfig:
    own: dict[str, Any] = {
        "train_vision": True,
        "vision_tuning": "full",
        "differential": {"enabled": True},
    }
    optimiser = {"max_steps": 3, "vision_learning_rate": 5e-4}
    given = {"optimiser": optimiser, "output": {"merge_adapters": True, "save_steps": 1}, **values}
    return settings("sft", start, **given | {"model": own | given.get("model", {})})


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
def test_two_processes_train_like_one(
    checkpoint: Any, family: str, tuning: str, sharded: bool, tmp_path: Path
) -> None:
    """With FSDP2 and without it, the last step's single row, too; a run that was stopped goes
    on."""
    start = checkpoint(family)
    two, alone = (
        write_run(
            tmp_path / name,
            with_module(
                start,
                model={"tuning": tuning},
                optimiser={
                    "max_steps": 3,
                    "vision_learning_rate": 5e-4,
                    "per_device_train_batch_size": batch,
                },
            ),
            rows=rows(6),
        )
        for name, batch in (("two", 1), ("one", 2))
    )
    run_in_ranks(fit_preferences.fit_preferences, [two], sharded=sharded)
    assert (two.run.checkpoint(3) / "pytorch_model_fsdp_0").exists() == sharded
    assert fit_preferences.fit_preferences(alone).finished
    for name in ("loss", "grad_norm"):
        assert curve(two.run, name) == pytest.approx(curve(alone.run, name), rel=1e-4), name
    for name in [
        "model.safetensors",
        WEIGHTS,
        *([f"adapters/{TUNED}"] if tuning == "lora" else []),
    ]:
        found, wanted = (load_file(job.run.model / name) for job in (two, alone))
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)

    stopped = stop_after_two_steps(two, tmp_path / "stopped")
    run_in_ranks(fit_preferences.fit_preferences, [stopped], sharded=sharded)
    assert curve(stopped.run) == curve(two.run)
    _compare(two.run, stopped.run, start, two.config)


def stop_after_two_steps(job: Job, root: Path) -> Job:
    """Return a copy of a finished run as if it had been killed in its third step."""
    shutil.copytree(Path(job.dataset.path("")), root)
    run = Run(root / "runs" / job.run.folder.name)
    shutil.rmtree(run.model)
    shutil.rmtree(run.checkpoint(3))
    return replace(job, dataset=Folder(str(root)), run=run)


def _compare(whole: Run, stopped: Run, start: Path, config: TrainConfig) -> None:
    """Look whether two runs have the same bytes, and all that is trained has moved."""
    lora = config.model.tuning == "lora"
    names = ["model.safetensors", WEIGHTS, *([f"adapters/{TUNED}"] if lora else [])]
    for name in names:
        assert (stopped.model / name).read_bytes() == (whole.model / name).read_bytes(), name
    before, after = (
        load_model(folder, config.model, dtype=torch.float32) for folder in (start, whole.model)
    )
    out = load_file(whole.model / WEIGHTS)["out.weight"]
    assert out.any(), "it began as zeros"
    moved = {
        name
        for name, weight in before.state_dict().items()
        if (weight != after.state_dict()[name]).any()
    }
    for part in (
        ("visual.patch_embed", "visual.merger")
        if "qwen" in start.name
        else ("vision_tower", "projector")
    ):
        assert any(part in name for name in moved), part
    frozen = {"embed_tokens", "norm"} if lora else set[str]()
    assert not [
        name for name in moved if "language_model" in name and any(part in name for part in frozen)
    ]


def test_two_rates_are_two_groups(qwen: Path, tmp_path: Path) -> None:
    optimiser = {"vision_learning_rate": 5e-4, "weight_decay": 0.1}
    trainer = fit_preferences.make_trainer(
        write_run(tmp_path, with_module(qwen, optimiser=optimiser), rows=rows())
    )
    groups = trainer.create_optimizer().param_groups
    assert {(group["lr"], group["weight_decay"]) for group in groups} == {
        (r, d) for r in (2e-3, 5e-4) for d in (0, 0.1)
    }
    model = trainer.accelerator.unwrap_model(trainer.model)
    names = {id(weight): name for name, weight in model.named_parameters()}
    found: dict[float, set[str]] = {}
    for group in groups:
        found.setdefault(group["lr"], set()).update(names[id(weight)] for weight in group["params"])
    assert found.keys() == {2e-3, 5e-4}
    assert all(".visual." in name and ".merger." not in name for name in found[5e-4])
    assert {name for name in names.values() if f".{NAME}." in name} <= found[2e-3]


def test_rows_that_are_no_pairs_are_refused(qwen: Path, tmp_path: Path) -> None:
    """Of three images one has nothing to be compared with; four are two pairs."""
    needs = needs_of(with_module(qwen))
    for images in (0, 1, 3):
        with pytest.raises(RefusedRowError, match=f"pairs: {images}"):
            make_example(preference(0, images=images), needs)
    assert (
        len(load_example(make_example(preference(0, images=4), needs), 10_000, pairs=True).images)
        == 4
    )
    given = [preference(n, images=1 + n % 3) for n in range(6)]
    job = write_run(tmp_path, with_module(qwen), rows=given)
    kept = ExampleRows(job.frozen_rows("train"), needs, 10_000)
    assert [type(kept[place]) for place in range(3)] == [Refused, Loaded, Refused]


def test_both_images_of_a_pair_get_one_size() -> None:
    needs = needs_of(
        TrainConfig.model_validate(
            {"objective": "sft", "model": {"differential": {"enabled": True}}}
        )
    )
    row = replace(
        preference(0),
        images=tuple(encoded(n, size) for n, size in enumerate([(100, 40), (50, 90)])),
    )
    found = load_example(make_example(row, needs), 1 << 20, pairs=True).images
    assert [image.size for image in found] == [(70, 60)] * 2  # roots of 100 * 50 and of 40 * 90
    assert [image.size for image in load_example(make_example(row, needs), 1 << 20).images] == [
        (100, 40),
        (50, 90),
    ]
    small = load_example(make_example(row, needs), 1000, pairs=True).images
    assert small[0].size == small[1].size
    assert small[0].width * small[0].height <= 1000
