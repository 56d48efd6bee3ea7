"""Texts in the space of CLIP's images: the vectors are those of open_clip's own pipeline, and long
texts are cut."""

import json

import numpy as np
import open_clip
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from open_clip.tokenizer import HFTokenizer
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_clip_folder(tmp_path_factory.mktemp("clip"), architecture=READING_CLIP)


@pytest.fixture(scope="module")
def scorer(folder):
    return OpenClipTexts(config=pin_clip(ClipConfig(checkpoint=str(folder)), download=False))


def reference(name, texts, **options):
    """Return what a user of open_clip gets, one text at a time."""
    model = open_clip.create_model(name, **options).eval()
    tokenize = open_clip.get_tokenizer(name)
    with torch.inference_mode():
        return np.concatenate(
            [model.encode_text(tokenize([text]), normalize=True).numpy() for text in texts]
        )


def test_vectors_are_those_of_open_clip(folder, scorer):
    got, wanted = scorer.embed(TEXTS), reference(f"local-dir:{folder}", TEXTS)
    assert got.dtype == np.float32
    assert got.shape == (len(TEXTS), READING_CLIP["embed_dim"])
    np.testing.assert_allclose(got, wanted, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1, rtol=1e-6)
    # The check above can fail: the texts' vectors differ.
    assert (got @ got.T)[~np.eye(len(TEXTS), dtype=bool)].max() < 0.999


def test_what_is_cut_is_told_in_pieces(scorer):
    """The tokenizer takes 75 words of one token each, and two marks."""
    assert scorer.pieces(" ".join(["dog"] * 75)) == (" ".join(["dog"] * 75),)
    assert scorer.pieces(" ".join(["dog"] * 76)) == (" ".join(["dog"] * 75), "dog")
    first, second = " ".join(["a black dog"] * 20) + ",", "and " + " ".join(["a white cat"] * 10)
    assert scorer.pieces(f"{first} {second}") == (first, second)
    ends = [f"{first} {second}", f"{first} {second[:-3]}dog"]
    cut, whole = scorer.embed(ends), scorer.embed([scorer.pieces(text)[-1] for text in ends])
    np.testing.assert_array_equal(cut[0], cut[1])
    assert np.abs(whole[0] - whole[1]).max() > 1e-4


def test_tokens_are_counted_uncut_by_either_tokenizer():
    inner = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({"a": 0, "dog": 1}, unk_token="a"))
    )
    inner.backend_tokenizer.pre_tokenizer = Whitespace()
    hugging_face = HFTokenizer.__new__(HFTokenizer)
    hugging_face.tokenizer, hugging_face.clean_fn = inner, str.strip
    clip = open_clip.get_tokenizer("ViT-S-32-alt")
    assert count_tokens(hugging_face, " a dog " * 50) == 100
    assert count_tokens(clip, " a dog " * 50) == 102


def test_a_tokenizer_that_is_not_there_is_one_message(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "empty"))
    folder = write_clip_folder(tmp_path / "clip", architecture=READING_CLIP)
    path = folder / "open_clip_config.json"
    config = json.loads(path.read_text())
    config["model_cfg"]["text_cfg"]["hf_tokenizer_name"] = "nobody/nothing"
    path.write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"embedding\.clip, tokenizer"):
        OpenClipTexts(config=ClipConfig(checkpoint=str(folder))).embed(["a dog"])


def test_a_vector_that_is_not_finite_is_one_message(tmp_path):
    folder = write_clip_folder(tmp_path, architecture=READING_CLIP)
    from safetensors.torch import load_file, save_file

    path = folder / "open_clip_model.safetensors"
    weights = load_file(path)
    weights["text_projection"].fill_(float("nan"))
    save_file(weights, path)
    with pytest.raises(ModelError, match="finite"):
        OpenClipTexts(config=ClipConfig(checkpoint=str(folder))).embed(["a dog"])


def tokens_of(text: str) -> int:
    """Count as a tokenizer of bytes would that knows all words of up to five letters."""
    return 2 + sum(1 if len(word) <= 5 else len(word.encode()) for word in text.split())


@pytest.mark.parametrize(
    ("text", "most", "pieces"),
    [
        ("a red ball", 5, ["a red ball"]),
        ("a  red\nball ", 5, ["a red ball"]),
        ("", 5, []),
        # Six words fit: the comma behind the fourth is in the second half.
        (
            "one two three four, five six seven eight",
            8,
            ["one two three four,", "five six seven eight"],
        ),
        # The comma behind the second is not.
        ("one two, three four five six seven", 8, ["one two, three four five six", "seven"]),
        # A clause begins where "while" does.
        ("a dog sits here while two cats run", 8, ["a dog sits here", "while two cats run"]),
        ("a b c d e f g", 5, ["a b c", "d e f", "g"]),
        # Nine letters are nine tokens: the word is cut to what fits for certain, a quarter of five.
        ("a bcdefghij k", 7, ["a b c d e", "f g h i j", "k"]),
        ("a fig; nuts, and eggs lie there", 7, ["a fig; nuts,", "and eggs lie there"]),
    ],
)
def test_where_texts_are_cut(text: str, most: int, pieces: list[str]) -> None:
    assert list(cut_text(text, tokens_of, most)) == pieces


@settings(max_examples=200)
@given(st.text(max_size=200), st.integers(6, 30))
def test_no_piece_is_too_long_and_nothing_is_lost(text: str, most: int) -> None:
    pieces = cut_text(text, tokens_of, most)
    assert all(tokens_of(piece) <= most for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


def test_an_endless_word_takes_no_time() -> None:
    counted: list[int] = []
    pieces = cut_text("x" * 20_000, lambda text: counted.append(len(text)) or tokens_of(text), 77)
    assert sum(len(piece.replace(" ", "")) for piece in pieces) == 20_000
    assert max(counted) < 2000, "it is never handed to the tokenizer whole"
