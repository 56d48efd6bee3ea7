"""What is said wrongly of a saved NAMC is refused before memory is taken for it."""

import json

import pytest

from pairwright.schemas.errors import ModelError
from pairwright.schemas.namc_config import NamcConfig
from pairwright.tasks.models.namc_words import learnt_words
from pairwright.tasks.training.namc.captioner import load_captioner, make_captioner, save_captioner


@pytest.fixture
def saved(tmp_path):
    vocabulary = learnt_words(["a red ball"] * 9, size=60)
    save_captioner(
        make_captioner(vocabulary, NamcConfig(noise_enabled=False), {}, seed=0), tmp_path
    )
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "other"}, "is not a NAMC"),
        ({"sizes": {"width": "wide"}}, "is not a NAMC"),
        ({"sizes": {"width": 1 << 40}}, "is not a NAMC"),
        ({"sizes": {"width": 10_240}}, r"model\.safetensors: .* expected "),
        ({"sizes": {"layers": 60}}, r"model\.safetensors: it has no "),
        ({"sizes": {"layers": 1 << 40}}, "is not a NAMC"),
        ({"sizes": {"heads": 5}}, r"namc\.json: .* sizes"),
        ({"sizes": {"places": -1}}, "is not a NAMC"),
        ({"sizes": {"dropout": 7.0}}, "is not a NAMC"),
        ({"sizes": {"vocabulary": 9}}, r"namc\.json: invalid sizes for 20 words"),
    ],
    ids=str,
)
def test_what_is_said_wrongly_of_a_model_is_refused(saved, changes, said):
    about = json.loads((saved / "namc.json").read_text())
    sizes = about["sizes"] | changes.get("sizes", {})
    (saved / "namc.json").write_text(json.dumps(about | changes | {"sizes": sizes}))
    with pytest.raises(ModelError, match=f"^--from: .*{said}"):
        load_captioner(saved)
