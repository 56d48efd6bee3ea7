"""What is said wrongly of a saved NAMC is refused before memory is taken for it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pairwright.schemas.errors import ModelError
from pairwright.schemas.namc import NamcConfig
from pairwright.tasks.models.namc_words import learnt_words
from pairwright.tasks.training.namc.batches import small_sizes
from pairwright.tasks.training.namc.captioner import load_captioner, make_captioner, save_captioner

SIZES = asdict(small_sizes(20))
"""Those of the model that is kept below: its words have 20 tokens."""
PAPER = {"config": "paper", "cnn": {"model": "resnet18"}}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    words = learnt_words(["a red ball"] * 9, size=60)
    save_captioner(make_captioner(words, NamcConfig(noise_enabled=False), {}, seed=0), tmp_path)
    return tmp_path


def test_one_of_before_is_opened(saved: Path) -> None:
    """One that was kept before there were others says less of itself."""
    (saved / "namc.json").write_text('{"model": "namc", "config": "small", "noise": false}')
    found = load_captioner(saved)
    assert (found.cnn, found.length, found.beams) == (None, 80, 1)
    with pytest.raises(ModelError, match=r"--size small .*noise.* --size paper"):
        load_captioner(saved, NamcConfig(size="paper"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"config": "paper"}, r"namc\.json .*CNN"),
        ({"model": "other"}, "--from: .* NAMC"),
        ({"beams": 1 << 40}, "--from: .* NAMC"),
        (PAPER | {"sizes": {"width": 1 << 40}}, r"namc\.json: .*2 layers of 12 heads"),
        (PAPER | {"sizes": {"width": "wide"}}, "--from: .* NAMC"),
        (PAPER | {"sizes": SIZES | {"width": 1 << 20}}, "does not fit"),
        (PAPER | {"sizes": SIZES | {"layers": 60}}, "does not fit"),
        (PAPER | {"sizes": SIZES | {"dropout": 7.0}}, "between 0 and 1"),
        (PAPER | {"sizes": SIZES | {"vocabulary": 9}}, "9 words"),
    ],
)
def test_what_is_said_wrongly_of_a_model_is_refused(saved: Path, changes: dict[str, Any], said: str) -> None:
    about = json.loads((saved / "namc.json").read_text())
    (saved / "namc.json").write_text(json.dumps(about | changes))
    with pytest.raises(ModelError, match=said):
        load_captioner(saved)
