"""Vectors of texts: words counted and hashed, halves apart; CLIP's tower piece by piece; hostile
texts."""

from dataclasses import replace

import numpy as np
import pytest

from pairwright.schemas.encoder_config import ClipConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.training import TextVectorsConfig
from pairwright.tasks.models.text_scorer import OpenClipTexts
from pairwright.tasks.training.embed_chosen_texts import (
    embed_chosen_texts,
    name_encoder,
    pin_texts,
    text_key,
)
from tests.fixtures.checkpoints import READING_CLIP, write_clip_folder
from tests.fixtures.descriptions import description
from tests.fixtures.preferences_to_train import preference

BEGINNING = "The difference between the two images is that "
SWAPPED = [
    description(*halves).text
    for halves in (("has a cat", "shows a dog"), ("shows a dog", "has a cat"))
]


def rows(*texts):
    return [replace(preference(number), chosen=text) for number, text in enumerate(texts)]


def vector_of(text, **config):
    (row,) = embed_chosen_texts(rows(text), TextVectorsConfig(**config))
    return np.array(row.vector)


def test_rows_are_about_their_texts():
    created = list(embed_chosen_texts(rows("a", "b", "a"), TextVectorsConfig()))
    assert [row.subject for row in created] == [text_key("a"), text_key("b"), text_key("a")]
    assert created[0].key == created[2].key != created[1].key
    assert [row.source_key for row in created] == [row.key for row in rows("a", "b", "a")]
    assert created[0].vector == created[2].vector
    assert {(row.embedder, len(row.vector)) for row in created} == {("words", 512)}
    assert list(embed_chosen_texts([], TextVectorsConfig())) == []


def test_halves_in_the_other_order_are_another_text():
    first, second = (vector_of(text) for text in SWAPPED)
    assert first @ second < 0.5
    plain = [vector_of(text.replace("The difference", "One difference")) for text in SWAPPED]
    assert plain[0] @ plain[1] > 0.8


@pytest.mark.parametrize(
    ("text", "length"),
    [("", 0), ("...", 0), ("🙂", 0), ("\x00", 0), ("x " * 500_000, 1), (BEGINNING, 1)],
)
def test_odd_texts_get_a_vector(text, length):
    assert np.linalg.norm(vector_of(text)) == pytest.approx(length, abs=1e-2)


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    folder = write_clip_folder(tmp_path_factory.mktemp("clip"), architecture=READING_CLIP)
    return ClipConfig(checkpoint=str(folder))


def test_a_long_text_is_the_sum_of_its_pieces(clip):
    balls = "there are {} red balls and a blue cube on the left"
    long = ", ".join(balls.format(number) for number in range(12))
    tower = OpenClipTexts(config=clip)
    pieces = tower.split_text(long)
    assert len(pieces) > 1
    total = tower.embed(pieces).sum(0)
    np.testing.assert_allclose(
        vector_of(long, encoder="clip", clip=clip), total / np.linalg.norm(total), atol=2e-3
    )
    short = tower.embed(["a red ball"])[0]
    np.testing.assert_allclose(vector_of("a red ball", encoder="clip", clip=clip), short, atol=2e-3)


def test_the_encoder_s_name_holds_what_decides_over_its_numbers(clip, tmp_path):
    names = {name_encoder(TextVectorsConfig()), name_encoder(TextVectorsConfig(dimension=64))}
    pinned = pin_texts(TextVectorsConfig(encoder="clip", clip=clip))
    names |= {name_encoder(pinned), name_encoder(TextVectorsConfig(encoder="clip"))}
    assert len(names) == 4
    assert pinned.clip.revision
    assert pin_texts(TextVectorsConfig()) == TextVectorsConfig()
    with pytest.raises(ModelError, match=r"embedding\.clip"):
        pin_texts(
            TextVectorsConfig(encoder="clip", clip=ClipConfig(checkpoint=str(tmp_path / "none")))
        )
