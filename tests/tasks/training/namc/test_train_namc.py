"""NAMC is trained on a run's rows, goes on where it was stopped, and is fine-tuned from a finished
run."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pairwright.schemas.errors import ConfigError, ModelError
from pairwright.schemas.rows import PreferenceRow
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.serving.chat import Question
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training.namc.captioner import answer_pairs, identify, is_namc
from pairwright.tasks.training.namc.namc_objective import check_settings
from pairwright.tasks.training.namc.train_namc import train_namc
from pairwright.tasks.training.objective import Job
from pairwright.tasks.training.runs import HELD_OUT, PLACES, TRAIN, MetricsFile, Run
from tests.fixtures.preferences_to_train import preference
from tests.fixtures.runs_to_train import write_run

THINGS = ("a red ball", "a dog on a mat", "two basketballing cats", "a blue cube", "an old tree")


def rows(count: int = 10) -> list[PreferenceRow]:
    """Return template descriptions, two of them held out; at the end a row of one image, and one
    off the template."""
    texts = [
        f"The difference between the two images is that the first image shows {THINGS[n % 5]}, "
        f"while the second image "
        f"features {THINGS[(n + 2) % 5]}."
        for n in range(count)
    ]
    made = [
        replace(preference(n), chosen=text, split="validation" if n < 2 else "train")
        for n, text in enumerate(texts)
    ]
    return [*made, preference(50, images=1), preference(51)]


def settings(**values: Any) -> TrainConfig:
    given = {
        "objective": "namc",
        "namc": {"max_new_tokens": 30, "image_mask_ratio": 0.4, "text_mask_ratio": 0.4},
        "optimiser": {
            "per_device_train_batch_size": 2,
            "gradient_accumulation_steps": 2,
            "max_steps": 5,
        },
        "output": {
            "logging_steps": 1,
            "save_steps": 2,
            "save_total_limit": 9,
            "keep_checkpoints": True,
        },
    }
    return TrainConfig.model_validate(
        given | {name: {**given.get(name, {}), **value} for name, value in values.items()}
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Job:
    job = write_run(tmp_path_factory.mktemp("namc"), settings(), rows=rows())
    ended = train_namc(job)
    assert ended.finished
    assert (ended.step, ended.steps) == (5, 5)
    assert ended.measured["loss/description"] > 0
    return job


def test_what_a_run_leaves(trained: Job) -> None:
    """Metrics of each loss, a model, answers beside references, samples; and why rows were left
    out."""
    metrics = MetricsFile(trained.run.metrics).resume()
    names = {
        "loss",
        "loss/alignment",
        "loss/description",
        "loss/reconstruction",
        "masked/places",
        "masked/words",
    }
    last = metrics.last(TRAIN)
    assert names <= last.keys()
    assert last["loss"] == pytest.approx(
        sum(last[name] for name in names if name.startswith("loss/"))
    )
    assert 0.2 < last["masked/places"] < 0.6
    assert list(metrics.last(HELD_OUT)) == ["loss/description"]
    assert trained.run.is_finished
    assert not (trained.run.folder / PLACES).exists()
    answers, wanted = (
        [
            json.loads(line)
            for line in (trained.run.folder / "answers" / f"{name}.jsonl").read_text().splitlines()
        ]
        for name in ("predictions", "references")
    )
    assert [row["id"] for row in answers] == [row["id"] for row in wanted]
    assert {row["text"] for row in wanted} == {
        row.chosen for row in rows() if row.split == "validation"
    }
    assert not any("[mask]" in row["text"].lower() for row in answers)
    samples = (trained.run.folder / "samples/samples.jsonl").read_text().splitlines()
    assert [json.loads(line)["answer"] for line in samples] == [row["text"] for row in answers]
    refused = [json.loads(line)["reason"] for line in trained.run.refused.read_text().splitlines()]
    assert sorted(refused) == ["no implicit-change description", "not about two images"]


def test_a_stopped_run_ends_with_the_same_weights(trained: Job, tmp_path: Path) -> None:
    shutil.copytree(Path(trained.dataset.path("")), tmp_path / "data")
    job = write_again(trained, tmp_path / "data")
    shutil.rmtree(job.run.model)
    for step in (4, 5):
        shutil.rmtree(job.run.checkpoint(step))
    assert train_namc(job).finished
    for name in ("model.safetensors", "words.json"):
        assert (job.run.model / name).read_bytes() == (trained.run.model / name).read_bytes(), name
    before, after = (
        [entry for entry in MetricsFile(one.run.metrics).resume().entries if entry[3] == "loss"]
        for one in (trained, job)
    )
    assert after == before


def write_again(job: Job, root: Path) -> Job:
    return replace(job, dataset=Folder(str(root)), run=Run(root / "runs" / job.run.folder.name))


def test_a_finished_run_is_tuned_on_any_text(trained: Job, tmp_path: Path) -> None:
    """Without noise there are no masks and no CLIP, and texts off the template are learnt from,
    too."""
    config = settings(namc={"noise_enabled": False}, optimiser={"max_steps": 2}).model_copy(
        update={"start": "namc"}
    )
    job = replace(write_run(tmp_path, config, rows=rows()), start=trained.run.model)
    assert train_namc(job).finished
    assert "masked/places" not in MetricsFile(job.run.metrics).resume().last(TRAIN)
    assert json.loads((job.run.model / "namc.json").read_text())["noise"] is False
    refused = [json.loads(line)["reason"] for line in job.run.refused.read_text().splitlines()]
    assert refused == ["not about two images"]
    (tmp_path / "other").mkdir()
    again = replace(
        write_run(tmp_path, config, rows=rows(), name="again"), start=tmp_path / "other"
    )
    with pytest.raises(ModelError, match=r"--from: .*namc\.json"):
        train_namc(again)


def test_what_it_does_not_have_is_refused(tmp_path: Path) -> None:
    for values in ({"data": {"group_by_length": True}}, {"output": {"report_to": ["wandb"]}}):
        with pytest.raises(ConfigError, match="not supported by NAMC"):
            check_settings(settings(**values))
    with pytest.raises(ConfigError, match=r"no row of split .*not about two images"):
        train_namc(write_run(tmp_path, settings(), rows=rows()[-2:]))


def test_it_answers_questions_about_two_images(trained: Job, tmp_path: Path) -> None:
    """In any batches the same; of other questions it says that they are none for it."""
    pairs = [row.images for row in rows(4)]
    asked = [
        (str(number), Question(prompt="", text="", images=images))
        for number, images in enumerate(pairs)
    ]
    asked += [("one", Question(prompt="", text="", images=pairs[0][:1]))]
    asked += [("torn", Question(prompt="", text="", images=(pairs[0][0], b"GIF89a")))]
    folder = trained.run.model
    replies = {one.name: one for one in answer_pairs(asked, folder=folder, batch=3)}
    alone = {one.name: one for one in answer_pairs(asked, folder=folder, batch=1)}
    assert replies == alone
    assert [replies[name].state for name in ("0", "1", "2", "3", "one", "torn")] == [
        *["answered"] * 4, "refused", "no image",
    ]  # fmt: skip
    about = json.loads((folder / "namc.json").read_text())
    assert about["length"] == 30, "it writes as in its run"
    assert is_namc(folder)
    assert not is_namc(tmp_path)
    assert identify(folder) == identify(folder)
