import math

import pytest
import torch

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.namc.noise import (
    NO_WORD,
    Draw,
    NoiseIdentifier,
    mask_probabilities,
    on_tokens,
    relevance,
    relevance_of_words,
)
from tests.fixtures.checkpoints import READING_CLIP, make_clip

START, END = 49406, 49407


@pytest.fixture(scope="module")
def clip():
    return make_clip(READING_CLIP).eval()


@pytest.fixture(scope="module")
def noise(clip):
    torch.manual_seed(0)
    return NoiseIdentifier(clip, width=8).eval()


def pixels(rows: int) -> torch.Tensor:
    return torch.randn(rows, 3, 64, 64, generator=torch.Generator().manual_seed(1))


def text(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Three words, the second of two pieces, then padding; the last row is empty."""
    tokens, words = torch.zeros(rows, 77, dtype=torch.long), torch.full((rows, 77), NO_WORD)
    tokens[:, :6] = torch.tensor([START, 320, 1125, 539, 320, END])
    words[:, 1:5] = torch.tensor([0, 1, 1, 2])
    tokens[-1, :6], words[-1] = torch.tensor([START, END, 0, 0, 0, 0]), NO_WORD
    return tokens, words


def test_without_masks_the_towers_are_open_clips(clip, noise):
    tokens, _ = text(3)
    torch.testing.assert_close(noise.see(pixels(2)).whole, clip.encode_image(pixels(2)))
    torch.testing.assert_close(noise.read(tokens).whole, clip.encode_text(tokens))


def test_what_is_masked_leaves_no_trace(noise):
    """Two images, and two texts, that differ in masked places only, are encoded alike."""
    one, other = pixels(1), pixels(1)
    other[:, :, :16, 16:32] += 5  # the second of 4 x 4 patches
    masked = torch.zeros(1, 16, dtype=torch.bool)
    assert not torch.allclose(noise.see(one, masked).whole, noise.see(other, masked).whole)
    masked[0, 1] = True
    torch.testing.assert_close(noise.see(one, masked).whole, noise.see(other, masked).whole)
    tokens, words = text(2)
    changed = tokens.clone()
    changed[0, 2:4] = torch.tensor([77, 78])
    hidden = on_tokens(torch.tensor([[False, True, False], [True, True, True]]), words)
    assert hidden.nonzero().tolist() == [[0, 2], [0, 3]]
    assert not torch.allclose(noise.read(tokens).whole, noise.read(changed).whole)
    torch.testing.assert_close(noise.read(tokens, hidden).whole, noise.read(changed, hidden).whole)


def test_relevance_is_the_highest_cosine():
    patches = torch.tensor([[[3.0, 0.0], [0.0, 2.0]]])
    tokens = torch.tensor([[[9.0, 9.0], [1.0, 0.0], [3.0, 4.0]]])
    seen, read = relevance(patches, tokens, torch.tensor([[False, True, True]]))
    torch.testing.assert_close(seen, torch.tensor([[1.0, 0.8]]))  # the first token is no word
    torch.testing.assert_close(read, torch.tensor([[math.sqrt(0.5), 1.0, 0.8]]))
    seen, _ = relevance(patches, tokens, torch.zeros(1, 3, dtype=torch.bool))
    assert seen.tolist() == [[0.0, 0.0]]


def test_a_word_is_as_relevant_as_its_best_piece():
    words = torch.tensor([[NO_WORD, 0, 1, 1, NO_WORD]])
    found, real = relevance_of_words(torch.tensor([[0.9, 0.1, 0.2, 0.3, 0.8]]), words)
    assert real.tolist() == [[True, True, False, False, False]]
    torch.testing.assert_close(found, torch.tensor([[0.1, 0.3, 0.0, 0.0, 0.0]]))


def test_probabilities_by_hand():
    """Irrelevance 0.2, 0.4, 1.2, mean 0.6: 0.2 - 0.4 < 0, 0.2 - 0.2, 0.2 + 0.6; the last place is padding."""
    relevant = torch.tensor([[0.8, 0.6, -0.2, 0.5]])
    real = torch.tensor([[True, True, True, False]])
    torch.testing.assert_close(mask_probabilities(relevant, 0.2, real), torch.tensor([[0.0, 0.0, 0.8, 0.0]]))
    torch.testing.assert_close(mask_probabilities(relevant, 0.9, real), torch.tensor([[0.5, 0.7, 1.0, 0.0]]))
    assert mask_probabilities(relevant, 0.9, torch.zeros_like(real)).tolist() == [[0.0] * 4]


def test_a_rows_masks_do_not_depend_on_its_neighbours(noise):
    tokens, words = text(3)
    together = noise.mask(pixels(3), tokens, words, Draw(seeds=[5, 6, 7], image_share=0.5, text_share=0.5))
    alone = noise.mask(pixels(3)[1:2], tokens[1:2], words[1:2], Draw(seeds=[6], image_share=0.5, text_share=0.5))
    assert torch.equal(together.patches[1:2], alone.patches)
    assert torch.equal(together.words[1:2], alone.words)
    assert not together.words[-1].any()  # an empty text
    again = noise.mask(pixels(3)[1:2], tokens[1:2], words[1:2], Draw(seeds=[8], image_share=0.5, text_share=0.5))
    assert not torch.equal(again.patches, alone.patches)


def test_so_much_is_masked_as_was_asked_for(noise):
    tokens, words = text(1)
    rows = 400
    draw = Draw(seeds=range(rows), image_share=0.2, text_share=0.15)
    found = noise.mask(pixels(1).expand(rows, -1, -1, -1), tokens.expand(rows, -1), words.expand(rows, -1), draw)
    seen, _ = relevance(noise.see(pixels(1)).patches, noise.read(tokens).tokens, words != NO_WORD)
    wanted = mask_probabilities(seen, 0.2, torch.ones_like(seen, dtype=torch.bool))[0]
    spread = (wanted * (1 - wanted) / rows).sqrt()
    assert ((found.patches.float().mean(0) - wanted).abs() <= 4 * spread + 1e-6).all()


def test_other_towers_are_refused(clip):
    clip.visual.pool_type = "avg"
    try:
        with pytest.raises(ModelError, match="CLIP"):
            NoiseIdentifier(clip, width=8)
    finally:
        clip.visual.pool_type = "tok"
