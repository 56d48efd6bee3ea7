"""The stage that scores a training's start: its numbers, its reasons, and what its fingerprint tells apart."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pairwright.schemas.rows import Dropped, PreferenceRow, ReferenceRow
from pairwright.schemas.training import ScoringConfig, TrainConfig
from pairwright.tasks.store.stage import fingerprint
from pairwright.tasks.training.collate import Collator, load_example
from pairwright.tasks.training.find_model import find_model
from pairwright.tasks.training.freeze_rows import make_example
from pairwright.tasks.training.load_model import load_model, load_processor
from pairwright.tasks.training.losses import CHOSEN, IMAGE, TEXTS, measures_of
from pairwright.tasks.training.pack_answers import pack_answers
from pairwright.tasks.training.score_answers import score_answers
from pairwright.tasks.training.score_rows import STAGE, release_scorer, score_rows, scoring_config
from tests.fixtures.preferences_to_train import preference


@pytest.fixture(autouse=True)
def _forget() -> Any:
    yield
    release_scorer()


def settings(**values: Any) -> TrainConfig:
    return TrainConfig.model_validate({"objective": "adavip", **values})


def scoring(folder: Path, **values: Any) -> ScoringConfig:
    return scoring_config(find_model(str(folder)), settings(**values))


def rows() -> list[PreferenceRow]:
    """Return rows of one and of two images, with and without rejected images and further negatives."""
    return [
        preference(0),
        preference(1, images=1),
        preference(2, rejected_images=2),
        preference(3, images=1, rejected_images=1, negatives=("The cup has gone.",)),
        replace(preference(4, rejected_images=2), rejected=""),
    ]


def ok(found: list[ReferenceRow | Dropped]) -> dict[str, ReferenceRow]:
    return {row.subject: row for row in found if isinstance(row, ReferenceRow)}


def one_by_one(folder: Path, row: PreferenceRow, config: TrainConfig) -> torch.Tensor:
    """Return a row's log-probabilities, each answer in a sequence of its own."""
    collator = Collator(load_processor(folder), 8192, apart=True)
    needs = measures_of(config)
    batch = collator([load_example(make_example(row, needs), config.model.max_pixels)])["batch"]
    model = load_model(folder, config.model, dtype=torch.float32).eval()
    with torch.no_grad():
        return score_answers(model, pack_answers(batch, model, width=4)).logps[0]


def test_every_answer_gets_what_it_gets_by_itself(qwen: Path) -> None:
    config = settings(optimiser={"per_device_train_batch_size": 3})
    found = ok(list(score_rows(rows(), scoring(qwen, optimiser={"per_device_train_batch_size": 3}))))
    assert len(found) == 5
    for row in rows():
        made = found[row.key]
        assert (made.source_key, len(made.logps), len(made.tokens)) == (row.key, 3, 3)
        torch.testing.assert_close(torch.tensor(made.logps), one_by_one(qwen, row, config)[:3], rtol=1e-5, atol=1e-5)
        shown = {CHOSEN, *([IMAGE] if row.rejected_images else []), *([TEXTS] if row.rejected else [])}
        assert {place for place, count in enumerate(made.tokens) if count} == shown
        assert {place for place, logp in enumerate(made.logps) if logp} == shown


def test_rows_that_cannot_be_scored_are_dropped_with_the_reason(qwen: Path) -> None:
    broken = replace(preference(5), images=(b"no image", b"no image"))
    foreign = replace(preference(6), chosen="<|im_end|> and on")
    silent = replace(preference(7), chosen=" ")
    found = list(score_rows([preference(0), broken, foreign, silent], scoring(qwen)))
    assert {one.source_key: one.reason for one in found if isinstance(one, Dropped)} == {
        broken.key: "an image cannot be decoded",
        foreign.key: "a control token in a text",
        silent.key: "no chosen text",
    }
    assert list(ok(found)) == [preference(0).key]
    (dropped,) = score_rows([preference(0)], scoring(qwen, model={"max_length": 16}))
    assert isinstance(dropped, Dropped)
    assert dropped.reason == "too long"
    assert list(score_rows([], scoring(qwen))) == []


def mark(config: ScoringConfig) -> str:
    return fingerprint(STAGE, config, prompts={}, tables={"preferences": "p"})


def test_what_decides_the_numbers_decides_the_table(qwen: Path, checkpoint: Any, tmp_path: Path) -> None:
    """Model, pixels and precision; and what is scored of a row. Each file of a model counts (``test_find_model``)."""
    same = mark(scoring(qwen))
    assert mark(scoring(Path(shutil.copytree(qwen, tmp_path / "copy")))) == same, "wherever it lies"
    assert mark(scoring(qwen, optimiser={"per_device_train_batch_size": 9, "learning_rate": 1e-3})) == same
    assert mark(scoring(qwen, adavip={"beta": 0.3})) == same
    assert mark(scoring(qwen, objective="mdpo")) == same, "objectives that score the same answers share a table"
    values: dict[str, dict[str, Any]] = {
        "pixels": {"model": {"max_pixels": 10_000}},
        "longest": {"model": {"max_length": 512}},
        "attention": {"model": {"attn_implementation": "eager"}},
        "packing": {"model": {"shared_prompt": "never"}},
        "dtype": {"optimiser": {"precision": "bf16"}},
        "weights": {"optimiser": {"precision": "bf16"}, "model": {"tuning": "full"}},
        "answers": {"objective": "dpo"},
        "texts": {"objective": "dpo", "dpo": {"max_negatives": 2}},
    }
    others = {name: mark(scoring(qwen, **own)) for name, own in values.items()}
    others["model"] = mark(scoring(checkpoint("qwen2_5_vl")))
    others["rows"] = fingerprint(STAGE, scoring(qwen), prompts={}, tables={"preferences": "q"})
    assert len({same, *others.values()}) == 1 + len(others), others
