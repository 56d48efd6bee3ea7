"""NAMC's equations by hand and against its parts: masks, reconstruction, descriptions, losses."""

import math
from dataclasses import replace

import numpy as np
import open_clip
import pytest
import torch

from pairwright.schemas.errors import ModelError
from pairwright.schemas.namc_config import NamcConfig
from pairwright.tasks.models import namc as namc_file
from pairwright.tasks.models.namc import (
    NO_WORD,
    Described,
    NamcSizes,
    NoiseIdentifier,
    alignment_loss,
    mask_probabilities,
)
from pairwright.tasks.models.namc_words import ClipWords, learnt_words
from tests.fixtures.checkpoints import READING_CLIP, make_clip

CLIP_START, CLIP_END = 49406, 49407


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
    tokens[:, :6] = torch.tensor([CLIP_START, 320, 1125, 539, 320, CLIP_END])
    words[:, 1:5] = torch.tensor([0, 1, 1, 2])
    tokens[-1, :6], words[-1] = torch.tensor([CLIP_START, CLIP_END, 0, 0, 0, 0]), NO_WORD
    return tokens, words


def test_without_masks_the_towers_are_open_clips(clip, noise):
    tokens, _ = text(3)
    torch.testing.assert_close(noise.encode_images(pixels(2))[0], clip.encode_image(pixels(2)))
    torch.testing.assert_close(noise.encode_texts(tokens)[0], clip.encode_text(tokens))


def test_what_is_masked_leaves_no_trace(noise):
    """Two images, and two texts, that differ in masked places only, are encoded alike."""
    one, other = pixels(1), pixels(1)
    other[:, :, :16, 16:32] += 5  # the second of 4 x 4 patches
    masked = torch.zeros(1, 16, dtype=torch.bool)
    assert not torch.allclose(
        noise.encode_images(one, masked)[0], noise.encode_images(other, masked)[0]
    )
    masked[0, 1] = True
    torch.testing.assert_close(
        noise.encode_images(one, masked)[0], noise.encode_images(other, masked)[0]
    )
    tokens, words = text(2)
    changed = tokens.clone()
    changed[0, 2:4] = torch.tensor([77, 78])
    hidden = namc_file.mask_tokens(torch.tensor([[False, True, False], [True, True, True]]), words)
    assert hidden.nonzero().tolist() == [[0, 2], [0, 3]]
    assert not torch.allclose(noise.encode_texts(tokens)[0], noise.encode_texts(changed)[0])
    torch.testing.assert_close(
        noise.encode_texts(tokens, hidden)[0], noise.encode_texts(changed, hidden)[0]
    )


def test_relevance_is_the_highest_cosine():
    patches = torch.tensor([[[3.0, 0.0], [0.0, 2.0]]])
    tokens = torch.tensor([[[9.0, 9.0], [1.0, 0.0], [3.0, 4.0]]])
    seen, read = namc_file.relevance(patches, tokens, torch.tensor([[False, True, True]]))
    torch.testing.assert_close(seen, torch.tensor([[1.0, 0.8]]))  # the first token is no word
    torch.testing.assert_close(read, torch.tensor([[math.sqrt(0.5), 1.0, 0.8]]))
    seen, _ = namc_file.relevance(patches, tokens, torch.zeros(1, 3, dtype=torch.bool))
    assert seen.tolist() == [[0.0, 0.0]]


def test_a_word_is_as_relevant_as_its_best_piece():
    words = torch.tensor([[NO_WORD, 0, 1, 1, NO_WORD]])
    found, real = namc_file.relevance_of_words(torch.tensor([[0.9, 0.1, 0.2, 0.3, 0.8]]), words)
    assert real.tolist() == [[True, True, False, False, False]]
    torch.testing.assert_close(found, torch.tensor([[0.1, 0.3, 0.0, 0.0, 0.0]]))


def test_probabilities_by_hand():
    """Irrelevance 0.2, 0.4, 1.2, mean 0.6: 0.2 - 0.4 < 0, 0.2 - 0.2, 0.2 + 0.6; the last place is
    padding."""
    relevant = torch.tensor([[0.8, 0.6, -0.2, 0.5]])
    real = torch.tensor([[True, True, True, False]])
    torch.testing.assert_close(
        mask_probabilities(relevant, 0.2, real), torch.tensor([[0.0, 0.0, 0.8, 0.0]])
    )
    torch.testing.assert_close(
        mask_probabilities(relevant, 0.9, real), torch.tensor([[0.5, 0.7, 1.0, 0.0]])
    )
    assert mask_probabilities(relevant, 0.9, torch.zeros_like(real)).tolist() == [[0.0] * 4]


def test_so_much_is_masked_as_was_asked_for(noise):
    tokens, words = (both[:1] for both in text(2))
    rows = 400
    torch.manual_seed(0)
    many = pixels(1).expand(rows, -1, -1, -1), tokens.expand(rows, -1), words.expand(rows, -1)
    found, hidden = noise.draw_masks(*many, shares=(0.2, 0.15))
    seen, _ = namc_file.relevance(
        noise.encode_images(pixels(1))[1], noise.encode_texts(tokens)[1], words != NO_WORD
    )
    wanted = mask_probabilities(seen, 0.2, torch.ones_like(seen, dtype=torch.bool))[0]
    spread = (wanted * (1 - wanted) / rows).sqrt()
    assert ((found.float().mean(0) - wanted).abs() <= 4 * spread + 1e-6).all()
    assert hidden[:, :3].any()
    assert not hidden[:, 3:].any()  # there are three words


def test_other_towers_are_refused(clip):
    clip.visual.pool_type = "avg"
    try:
        with pytest.raises(ModelError, match="CLIP"):
            NoiseIdentifier(clip, width=8)
    finally:
        clip.visual.pool_type = "tok"


IMAGE_SIZES = NamcSizes(
    width=16, heads=2, places=4, features=6, codes=5, vocabulary=11, length=9, dropout=0.0
)


@pytest.fixture(scope="module")
def encoder():
    torch.manual_seed(0)
    return namc_file.MaskedImageEncoder(IMAGE_SIZES).eval()


def features(seed: int) -> torch.Tensor:
    return torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(seed))


MASKED = torch.tensor([[True, False, False, False], [False, False, False, True]])
READ = torch.tensor([[True, True, False], [True, False, False]])


def test_what_a_masked_place_held_is_not_seen(encoder):
    text = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(9))
    other = torch.where(MASKED[..., None], features(1) + 3, features(1))
    found = encoder.reconstruct(features(1), MASKED, text, READ)
    assert found.shape == (2, 4, 5)
    torch.testing.assert_close(encoder.reconstruct(other, MASKED, text, READ), found)
    padded = torch.where(READ[..., None], text, text + 7)
    torch.testing.assert_close(encoder.reconstruct(features(1), MASKED, padded, READ), found)
    assert not torch.allclose(encoder.reconstruct(features(1), MASKED, text + 1, READ), found)


def test_masked_places_are_looked_at_in_reconstruction_only(encoder):
    """The learned vector and its place reach other places when an image is reconstructed, not in
    the comparison."""
    text = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(9))
    before = encoder.reconstruct(features(1), MASKED, text, READ)
    compared = encoder.interact((features(1), features(2)), (MASKED, None))
    kept = encoder.masked_place.detach().clone()
    with torch.no_grad():
        encoder.masked_place.add_(3)
        again = encoder.reconstruct(features(1), MASKED, text, READ)
        compared_again = encoder.interact((features(1), features(2)), (MASKED, None))
        encoder.masked_place.copy_(kept)
    assert not torch.allclose(before[~MASKED], again[~MASKED])
    torch.testing.assert_close(compared[~MASKED], compared_again[~MASKED])


def test_a_comparison_knows_which_image_comes_first(encoder):
    """The streams change places with the images: the halves that are joined are swapped."""
    one, other = features(1), features(2)
    forward, backward = (
        encoder.interact((one, other), (None, None)),
        encoder.interact((other, one), (None, None)),
    )
    assert not torch.allclose(forward, backward)
    weight = encoder.join.weight.detach().clone()
    with torch.no_grad():
        encoder.join.weight.copy_(weight.roll(16, dims=1))
        torch.testing.assert_close(encoder.interact((other, one), (None, None)), forward)
        encoder.join.weight.copy_(weight)


def test_absent_mask_is_empty_and_full_mask_gives_finite_numbers(encoder):
    images, empty, every = (
        (features(1), features(2)),
        torch.zeros_like(MASKED),
        torch.ones_like(MASKED),
    )
    torch.testing.assert_close(
        encoder.interact(images, (empty, empty)), encoder.interact(images, (None, None))
    )
    assert encoder.interact(images, (every, every)).isfinite().all()


SIZES = replace(IMAGE_SIZES, vocabulary=7)
START, END, MASK = 1, 2, 3


@pytest.fixture(scope="module")
def describer():
    torch.manual_seed(3)
    made = namc_file.Describer(SIZES).eval()
    with torch.no_grad():
        made.words.weight.mul_(40)  # so that its choices are clear
    return made


def compared(rows: int) -> torch.Tensor:
    return 3 * torch.randn(rows, 4, 16, generator=torch.Generator().manual_seed(4))


HOW = {"start": START, "end": END, "banned": (0, MASK), "length": 5}


def test_a_token_does_not_see_what_follows(describer):
    one, other = torch.tensor([[START, 4, 5, 6]]), torch.tensor([[START, 4, 6, 5]])
    torch.testing.assert_close(
        describer(one, compared(1))[:, :2], describer(other, compared(1))[:, :2]
    )


def test_greedy_is_the_likeliest_token_at_each_step(describer):
    found = describer.write(compared(6), **HOW)
    for row, words in enumerate(found):
        image, tokens = compared(6)[row : row + 1], [START]
        for _ in range(5):
            logits = describer(torch.tensor([tokens]), image)[0, -1]
            logits[[0, MASK]] = -math.inf
            tokens.append(int(logits.argmax()))
            if tokens[-1] == END:
                break
        assert words == [token for token in tokens[1:] if token != END]
    assert len({tuple(words) for words in found}) > 1


def test_no_banned_word_is_written_and_no_more_than_there_are_places(describer):
    """With everything else but the end banned, nothing is left to say."""
    assert describer.write(compared(2), **HOW | {"banned": (0, 1, MASK, 4, 5, 6)}) == [[], []]
    found = describer.write(compared(2), **HOW | {"banned": (0, END, MASK), "length": 100})
    assert [len(one) for one in found] == [SIZES.length] * 2


def test_the_default_has_as_many_weights_as_the_paper_says():
    """64.2 M in reconstruction and description, the encoders of CLIP and the CNN aside."""
    with torch.device("meta"):
        parts = (namc_file.MaskedImageEncoder(NamcSizes()), namc_file.Describer(NamcSizes()))
        count = sum(weight.numel() for part in parts for weight in part.parameters())
    assert round(count / 1e6, 1) == 64.2


TEXTS = [("a red ball", "a basketballing cat"), ("a blue cube on a table", ""), ("a dog", "a dog")]
PARTS = ("noise", "encoder", "describer")


@pytest.fixture(scope="module")
def vocabulary():
    whole = (
        "the difference between the two images is that the first image shows {}, while the "
        "second image has {}."
    )
    return learnt_words([whole.format(*both) for both in TEXTS] * 9, size=300)


@pytest.fixture(scope="module")
def batch(vocabulary):
    clip = ClipWords(open_clip.get_tokenizer("ViT-B-32"))
    halves = [tuple(clip.split(text) for text in both) for both in TEXTS]
    written = [vocabulary.write(both, ("shows", "has"), length=40) for both in halves]
    longest = max(len(one.tokens) for one in written)
    generator = torch.Generator().manual_seed(0)
    return Described(
        pixels=torch.randn(3, 2, 3, 64, 64, generator=generator),
        features=torch.randn(3, 2, 16, 12, generator=generator),
        codes=torch.zeros(3, 2, 16, dtype=torch.long),
        texts=torch.tensor([[0, 1], [2, 3], [4, 4]]),
        tokens=torch.from_numpy(np.array([[one.tokens for one in both] for both in halves])),
        words=torch.from_numpy(np.array([[one.numbers for one in both] for both in halves])),
        written=torch.stack([filled(one.tokens, longest, vocabulary.pad) for one in written]),
        numbers=torch.stack([filled(one.numbers, longest, -1) for one in written]),
    )


def filled(values, length: int, padding: int) -> torch.Tensor:
    return torch.nn.functional.pad(
        torch.from_numpy(values), (0, length - len(values)), value=padding
    )


@pytest.fixture
def model(vocabulary):
    torch.manual_seed(1)
    sizes = replace(SIZES, places=16, features=12, vocabulary=vocabulary.size, length=40)
    return namc_file.Namc(sizes, NoiseIdentifier(make_clip(READING_CLIP), width=16))


def pretrain(model, batch, vocabulary, share=0.4):
    config = NamcConfig(image_mask_ratio=share, text_mask_ratio=share)
    torch.manual_seed(2)
    return model.pretrain(batch, config, pad=vocabulary.pad, mask=vocabulary.mask)


def test_what_is_masked_for_clip_is_masked_for_the_decoder(model, batch, vocabulary, monkeypatch):
    """All words are; those of the template, the verbs and the padding never are."""
    monkeypatch.setattr(torch, "rand_like", lambda values: torch.full_like(values, -1.0))
    shown = []
    monkeypatch.setattr(
        model.describer, "forward", lambda *seen: shown.append(seen[0]) or torch.zeros(3, 1, 9)
    )
    with pytest.raises(ValueError, match="batch_size"):  # of logits that are none
        pretrain(model, batch, vocabulary)
    hidden = shown[0] == vocabulary.mask
    assert torch.equal(hidden, batch.numbers[:, :-1] != NO_WORD)
    words = [
        vocabulary.read(row[own].tolist())
        for row, own in zip(batch.written[:, :-1], hidden, strict=True)
    ]
    assert words[2].split() == ["a", "dog", "a", "dog"]


def test_no_loss_reaches_what_it_should_not(model, batch, vocabulary):
    losses, counted = pretrain(model, batch, vocabulary)
    assert 0 < counted["places"] < 1
    assert 0 < counted["words"] < 1
    reached = {
        "alignment": {"noise"},
        "reconstruction": {"noise", "encoder"},
        "description": {"encoder", "describer"},
    }
    for name, parts in reached.items():
        assert losses[name].isfinite(), name
        model.zero_grad()
        losses[name].backward(retain_graph=True)
        got = {
            part
            for part in PARTS
            for weight in getattr(model, part).parameters()
            if has_slope(weight)
        }
        assert got == parts, name


def has_slope(weight: torch.Tensor) -> bool:
    return weight.grad is not None and bool(weight.grad.abs().sum() > 0)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_nothing_and_nearly_everything_masked_give_finite_losses(model, batch, vocabulary, share):
    losses, _ = pretrain(model, batch, vocabulary, share)
    sum(losses.values()).backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in model.parameters())


def test_it_learns_a_description_and_writes_it(model, batch, vocabulary):
    """Fine-tuned on three pairs, it writes their three descriptions."""
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(120):
        optimiser.zero_grad()
        model(batch.features, batch.written, pad=vocabulary.pad).backward()
        optimiser.step()
    model.eval()
    own = {
        "start": vocabulary.start,
        "end": vocabulary.end,
        "banned": (vocabulary.mask, vocabulary.pad),
    }
    found = model.describer.write(model.compare(batch.features), length=40, **own)
    assert list(map(vocabulary.read, found)) == [
        vocabulary.read(row.tolist()) for row in batch.written
    ]


def test_alignment_spares_equal_texts_as_false_negatives():
    """Rows 0 and 1 have the same text and the same vectors: p is 1/2 for both, and so is q."""
    images, own = torch.eye(3), torch.arange(3)
    found = alignment_loss(5 * images, 2 * images, own)
    assert float(found) == pytest.approx(0, abs=1e-6)  # cosines 1 and 0 at 0.02: p is one-hot
    assert float(alignment_loss(images, images.roll(1, 0), own)) == pytest.approx(
        2 * math.log(1e8), rel=1e-4
    )
    vectors = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert float(alignment_loss(vectors, vectors, torch.tensor([7, 7, 9]))) == pytest.approx(
        0, abs=1e-6
    )
    assert float(alignment_loss(vectors, vectors, torch.tensor([7, 8, 9]))) > 1


def test_alignment_is_not_rounded():
    """Within autocast the loss is that of without it, for vectors in bfloat16 too."""
    draw = torch.Generator().manual_seed(0)
    images, texts = (torch.randn(16, 32, generator=draw).bfloat16() for _ in range(2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = alignment_loss(images, texts, torch.arange(16))
    assert found.dtype == torch.float32
    assert torch.equal(found, alignment_loss(images, texts, torch.arange(16)))


def test_description_ignores_what_is_not_to_be_learnt():
    logits = torch.zeros(1, 3, 4)
    logits[0, 1, 2] = 1.0
    labels = torch.tensor([[0, 2, namc_file.IGNORED]])
    expected = (math.log(4) + math.log(3 + math.e) - 1) / 2
    assert float(namc_file.prediction_loss(logits, labels)) == pytest.approx(expected)
    assert float(namc_file.prediction_loss(logits, torch.full((1, 3), namc_file.IGNORED))) == 0
