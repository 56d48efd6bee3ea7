"""Texts in the space of CLIP's images: vectors are those of open_clip; long texts are cut."""

import json

import numpy as np
import open_clip
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from open_clip.tokenizer import HFTokenizer
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from pairwright.schemas.encoder_config import ClipConfig
from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.open_clip_embedder import pin_clip
from pairwright.tasks.models.text_scorer import OpenClipTexts, count_tokens, cut_text
from tests.fixtures.checkpoints import READING_CLIP, write_clip_folder

TEXTS = ["a dog", "a red ball on a table", "two cats, one of them asleep", "", "écran — 17½"]


def scorer_of(folder):
    return OpenClipTexts(config=ClipConfig(checkpoint=str(folder)))


@pytest.fixture(scope="module")
def scorer(reading_clip_folder):
    config = ClipConfig(checkpoint=str(reading_clip_folder))
    return OpenClipTexts(config=pin_clip(config, download=False))


def test_vectors_are_those_of_open_clip(reading_clip_folder, scorer):
    name = f"local-dir:{reading_clip_folder}"
    model, tokenize = open_clip.create_model(name).eval(), open_clip.get_tokenizer(name)
    with torch.inference_mode():
        expected = [model.encode_text(tokenize([text]), normalize=True) for text in TEXTS]
    vectors = scorer.embed(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(TEXTS), READING_CLIP["embed_dim"])
    np.testing.assert_allclose(vectors, np.concatenate(expected), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)
    others = (vectors @ vectors.T)[~np.eye(len(TEXTS), dtype=bool)]
    assert others.max() < 0.999, "the texts' vectors differ"


DOG = "dog"
CLAUSES = " ".join(["a black dog"] * 20) + ",", "and " + " ".join(["a white cat"] * 10)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        pytest.param(" ".join([DOG] * 75), (" ".join([DOG] * 75),), id="75 tokens and two marks"),
        pytest.param(" ".join([DOG] * 76), (" ".join([DOG] * 75), DOG), id="one more"),
        pytest.param(" ".join(CLAUSES), CLAUSES, id="clauses"),
    ],
)
def test_what_is_cut_is_told_in_pieces(scorer, text, pieces):
    assert scorer.split_text(text) == pieces


def test_of_a_cut_text_the_beginning_counts(scorer):
    first, second = CLAUSES
    ends = [f"{first} {second}", f"{first} {second.removesuffix('cat')}dog"]
    cut, whole = scorer.embed(ends), scorer.embed([scorer.split_text(text)[-1] for text in ends])
    np.testing.assert_array_equal(cut[0], cut[1])
    assert np.abs(whole[0] - whole[1]).max() > 1e-4


def test_tokens_are_counted_uncut_by_either_tokenizer():
    words = Tokenizer(WordLevel({"a": 0, "dog": 1}, unk_token="a"))
    inner = PreTrainedTokenizerFast(tokenizer_object=words)
    inner.backend_tokenizer.pre_tokenizer = Whitespace()
    hugging_face = HFTokenizer.__new__(HFTokenizer)
    hugging_face.tokenizer, hugging_face.clean_fn = inner, str.strip
    assert count_tokens(hugging_face, " a dog " * 50) == 100
    assert count_tokens(open_clip.get_tokenizer("ViT-S-32-alt"), " a dog " * 50) == 102


@pytest.mark.usefixtures("hub_cache")
def test_a_tokenizer_that_is_not_there_is_one_message(tmp_path):
    folder = write_clip_folder(tmp_path / "clip", architecture=READING_CLIP)
    path = folder / "open_clip_config.json"
    config = json.loads(path.read_text())
    config["model_cfg"]["text_cfg"]["hf_tokenizer_name"] = "nobody/nothing"
    path.write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"embedding\.clip, tokenizer"):
        scorer_of(folder).embed(["a dog"])


def test_a_vector_that_is_not_finite_is_one_message(tmp_path):
    folder = write_clip_folder(tmp_path, architecture=READING_CLIP)
    path = folder / "open_clip_model.safetensors"
    weights = load_file(path)
    weights["text_projection"].fill_(float("nan"))
    save_file(weights, path)
    with pytest.raises(ModelError, match="finite"):
        scorer_of(folder).embed(["a dog"])


def tokens_of(text):
    """Count as a tokenizer of bytes would that knows all words of up to five letters."""
    return 2 + sum(1 if len(word) <= 5 else len(word.encode()) for word in text.split())


EIGHT = "one two three four, five six seven eight"


@pytest.mark.parametrize(
    ("text", "most", "pieces"),
    [
        ("a red ball", 5, ["a red ball"]),
        ("a  red\nball ", 5, ["a red ball"]),
        ("", 5, []),
        pytest.param(EIGHT, 8, EIGHT.replace(", ", ",|").split("|"), id="comma in second half"),
        pytest.param(
            "one two, three four five six seven",
            8,
            ["one two, three four five six", "seven"],
            id="comma in first half",
        ),
        pytest.param(
            "a dog sits here while two cats run",
            8,
            ["a dog sits here", "while two cats run"],
            id="a clause begins at while",
        ),
        ("a b c d e f g", 5, ["a b c", "d e f", "g"]),
        pytest.param(
            "a bcdefghij k", 7, ["a b c d e", "f g h i j", "k"], id="a word of nine tokens"
        ),
        ("a fig; nuts, and eggs lie there", 7, ["a fig; nuts,", "and eggs lie there"]),
    ],
)
def test_where_texts_are_cut(text, most, pieces):
    assert list(cut_text(text, tokens_of, most)) == pieces


@settings(max_examples=100)
@given(st.text(max_size=200), st.integers(6, 30))
def test_no_piece_is_too_long_and_nothing_is_lost(text, most):
    pieces = cut_text(text, tokens_of, most)
    assert all(tokens_of(piece) <= most for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


def test_an_endless_word_is_never_handed_to_the_tokenizer_whole():
    lengths = []
    pieces = cut_text("x" * 20_000, lambda text: lengths.append(len(text)) or tokens_of(text), 77)
    assert sum(len(piece.replace(" ", "")) for piece in pieces) == 20_000
    assert max(lengths) < 2000
