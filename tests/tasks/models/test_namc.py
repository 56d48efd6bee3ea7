"""NAMC's equations by hand and against its parts: masks, reconstruction, descriptions, losses."""

import math
from dataclasses import replace

import numpy as np
import open_clip
import pytest
import torch
from torch.nn.functional import pad
from torch.testing import assert_close

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
SIZES = NamcSizes(
    width=16, heads=2, places=4, features=6, codes=5, vocabulary=7, length=9, dropout=0.0
)


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def clip():
    return make_clip(READING_CLIP).eval()


@pytest.fixture(scope="module")
def noise(clip):
    torch.manual_seed(0)
    return NoiseIdentifier(clip, width=8).eval()


def pixels(rows):
    return random(rows, 3, 64, 64, seed=1)


def texts(rows):
    """Three words, the second of two pieces, then padding; the last row is empty."""
    tokens, words = torch.zeros(rows, 77, dtype=torch.long), torch.full((rows, 77), NO_WORD)
    tokens[:, :6] = torch.tensor([CLIP_START, 320, 1125, 539, 320, CLIP_END])
    words[:, 1:5] = torch.tensor([0, 1, 1, 2])
    tokens[-1, :6], words[-1] = torch.tensor([CLIP_START, CLIP_END, 0, 0, 0, 0]), NO_WORD
    return tokens, words


def test_without_masks_the_towers_are_open_clips(clip, noise):
    tokens, _ = texts(3)
    assert_close(noise.encode_images(pixels(2))[0], clip.encode_image(pixels(2)))
    assert_close(noise.encode_texts(tokens)[0], clip.encode_text(tokens))


def test_a_masked_patch_leaves_no_trace(noise):
    """Two images differ in the second of 4 x 4 patches."""
    image, other = pixels(1), pixels(1)
    other[:, :, :16, 16:32] += 5
    mask = torch.zeros(1, 16, dtype=torch.bool)
    vectors = noise.encode_images(image, mask)[0]
    assert not torch.allclose(vectors, noise.encode_images(other, mask)[0])
    mask[0, 1] = True
    assert_close(noise.encode_images(image, mask)[0], noise.encode_images(other, mask)[0])


def test_a_masked_word_leaves_no_trace(noise):
    tokens, words = texts(2)
    changed = tokens.clone()
    changed[0, 2:4] = torch.tensor([77, 78])
    masked_words = torch.tensor([[False, True, False], [True, True, True]])
    hidden = namc_file.mask_tokens(masked_words, words)
    assert hidden.nonzero().tolist() == [[0, 2], [0, 3]]
    assert not torch.allclose(noise.encode_texts(tokens)[0], noise.encode_texts(changed)[0])
    assert_close(noise.encode_texts(tokens, hidden)[0], noise.encode_texts(changed, hidden)[0])


def test_relevance_is_the_highest_cosine_with_a_word():
    patches = torch.tensor([[[3.0, 0.0], [0.0, 2.0]]])
    tokens = torch.tensor([[[9.0, 9.0], [1.0, 0.0], [3.0, 4.0]]])
    of_patches, of_tokens = namc_file.relevance(
        patches, tokens, torch.tensor([[False, True, True]])
    )
    assert_close(of_patches, torch.tensor([[1.0, 0.8]]))
    assert_close(of_tokens, torch.tensor([[math.sqrt(0.5), 1.0, 0.8]]))
    none, _ = namc_file.relevance(patches, tokens, torch.zeros(1, 3, dtype=torch.bool))
    assert none.tolist() == [[0.0, 0.0]]


def test_a_word_is_as_relevant_as_its_best_piece():
    words = torch.tensor([[NO_WORD, 0, 1, 1, NO_WORD]])
    pieces = torch.tensor([[0.9, 0.1, 0.2, 0.3, 0.8]])
    relevance, real = namc_file.relevance_of_words(pieces, words)
    assert real.tolist() == [[True, True, False, False, False]]
    assert_close(relevance, torch.tensor([[0.1, 0.3, 0.0, 0.0, 0.0]]))


@pytest.mark.parametrize(
    ("share", "places", "expected"),
    [
        (0.2, [True, True, True, False], [0.0, 0.0, 0.8, 0.0]),
        (0.9, [True, True, True, False], [0.5, 0.7, 1.0, 0.0]),
        (0.9, [False] * 4, [0.0] * 4),
    ],
)
def test_probabilities_by_hand(share, places, expected):
    """Irrelevance 0.2, 0.4, 1.2, mean 0.6: 0.2 - 0.4 < 0, 0.2 - 0.2, 0.2 + 0.6; then padding."""
    relevance = torch.tensor([[0.8, 0.6, -0.2, 0.5]])
    probabilities = mask_probabilities(relevance, share, torch.tensor([places]))
    assert_close(probabilities, torch.tensor([expected]))


def test_so_much_is_masked_as_was_asked_for(noise):
    (tokens, words), rows = (part[:1] for part in texts(2)), 400
    torch.manual_seed(0)
    batch = pixels(1).expand(rows, -1, -1, -1), tokens.expand(rows, -1), words.expand(rows, -1)
    masked, hidden = noise.draw_masks(*batch, shares=(0.2, 0.15))
    patches, pieces = noise.encode_images(pixels(1))[1], noise.encode_texts(tokens)[1]
    relevance, _ = namc_file.relevance(patches, pieces, words != NO_WORD)
    every = torch.ones_like(relevance, dtype=torch.bool)
    expected = mask_probabilities(relevance, 0.2, every)[0]
    spread = (expected * (1 - expected) / rows).sqrt()
    assert ((masked.float().mean(0) - expected).abs() <= 4 * spread + 1e-6).all()
    assert hidden[:, :3].any()
    assert not hidden[:, 3:].any(), "there are three words"


def test_other_towers_are_refused(clip, monkeypatch):
    monkeypatch.setattr(clip.visual, "pool_type", "avg")
    with pytest.raises(ModelError, match="CLIP"):
        NoiseIdentifier(clip, width=8)


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return namc_file.MaskedImageEncoder(SIZES).eval()


def features(seed):
    return random(2, 4, 6, seed=seed)


MASKED = torch.tensor([[True, False, False, False], [False, False, False, True]])
READ = torch.tensor([[True, True, False], [True, False, False]])
TEXT = random(2, 3, 16, seed=9)


def test_what_a_masked_place_held_is_not_seen(encoder):
    output = encoder.reconstruct(features(1), MASKED, TEXT, READ)
    assert output.shape == (2, 4, 5)
    other = torch.where(MASKED[..., None], features(1) + 3, features(1))
    assert_close(encoder.reconstruct(other, MASKED, TEXT, READ), output)
    padded = torch.where(READ[..., None], TEXT, TEXT + 7)
    assert_close(encoder.reconstruct(features(1), MASKED, padded, READ), output)
    assert not torch.allclose(encoder.reconstruct(features(1), MASKED, TEXT + 1, READ), output)


@torch.no_grad()
def test_masked_places_are_looked_at_in_reconstruction_only(encoder):
    """The learned vector and its place reach other places then, and not in the comparison."""

    def run():
        reconstructed = encoder.reconstruct(features(1), MASKED, TEXT, READ)
        compared = encoder.interact((features(1), features(2)), (MASKED, None))
        return reconstructed[~MASKED], compared[~MASKED]

    reconstructed, compared = run()
    encoder.masked_place.add_(3)
    again, compared_again = run()
    assert not torch.allclose(reconstructed, again)
    assert_close(compared, compared_again)


@torch.no_grad()
def test_a_comparison_knows_which_image_comes_first(encoder):
    """The streams change places with the images: the halves that are joined are swapped."""
    first, second = features(1), features(2)
    forward = encoder.interact((first, second), (None, None))
    assert not torch.allclose(forward, encoder.interact((second, first), (None, None)))
    encoder.join.weight.copy_(encoder.join.weight.roll(16, dims=1))
    assert_close(encoder.interact((second, first), (None, None)), forward)


def test_an_absent_mask_is_empty_and_a_full_mask_gives_finite_numbers(encoder):
    images, empty, full = (features(1), features(2)), MASKED & False, MASKED | True
    absent = encoder.interact(images, (None, None))
    assert_close(encoder.interact(images, (empty, empty)), absent)
    assert encoder.interact(images, (full, full)).isfinite().all()


START, END, MASK = 1, 2, 3
HOW = {"start": START, "end": END, "banned": (0, MASK), "length": 5}


@pytest.fixture(scope="module")
def describer():
    """Return a describer whose choices are clear."""
    torch.manual_seed(3)
    describer = namc_file.Describer(SIZES).eval()
    with torch.no_grad():
        describer.words.weight.mul_(40)
    return describer


def compared(rows):
    return 3 * random(rows, 4, 16, seed=4)


def test_a_token_does_not_see_what_follows(describer):
    first, second = torch.tensor([[START, 4, 5, 6]]), torch.tensor([[START, 4, 6, 5]])
    logits, other = (describer(tokens, compared(1))[:, :2] for tokens in (first, second))
    assert_close(logits, other)


def test_greedy_is_the_likeliest_token_at_each_step(describer):
    texts = describer.generate(compared(6), **HOW)
    for row, text in enumerate(texts):
        image, tokens = compared(6)[row : row + 1], [START]
        while tokens[-1] != END and len(tokens) <= 5:
            logits = describer(torch.tensor([tokens]), image)[0, -1]
            logits[[0, MASK]] = -math.inf
            tokens.append(int(logits.argmax()))
        assert text == [token for token in tokens[1:] if token != END]
    assert len({tuple(text) for text in texts}) > 1


def test_no_banned_word_is_written(describer):
    """With everything else but the end banned, nothing is left to say."""
    banned = {"banned": (0, 1, MASK, 4, 5, 6)}
    assert describer.generate(compared(2), **HOW | banned) == [[], []]


def test_no_more_is_written_than_there_are_places(describer):
    texts = describer.generate(compared(2), **HOW | {"banned": (0, END, MASK), "length": 100})
    assert [len(text) for text in texts] == [SIZES.length] * 2


def test_the_default_has_as_many_weights_as_the_paper_says():
    """64.2 M in reconstruction and description, the encoders of CLIP and the CNN aside."""
    with torch.device("meta"):
        parts = namc_file.MaskedImageEncoder(NamcSizes()), namc_file.Describer(NamcSizes())
        count = sum(weight.numel() for part in parts for weight in part.parameters())
    assert round(count / 1e6, 1) == 64.2


TEXTS = [("a red ball", "a basketballing cat"), ("a blue cube on a table", ""), ("a dog", "a dog")]


@pytest.fixture(scope="module")
def vocabulary():
    template = (
        "the difference between the two images is that the first image shows {}, while the "
        "second image has {}."
    )
    return learnt_words([template.format(*halves) for halves in TEXTS] * 9, size=300)


@pytest.fixture(scope="module")
def batch(vocabulary):
    clip = ClipWords(open_clip.get_tokenizer("ViT-B-32"))
    halves = [tuple(clip.split_words(text) for text in both) for both in TEXTS]
    written = [vocabulary.compose(both, ("shows", "has"), length=40) for both in halves]
    longest = max(len(text.tokens) for text in written)

    def fill(values, padding):
        return pad(torch.from_numpy(values), (0, longest - len(values)), value=padding)

    return Described(
        pixels=random(3, 2, 3, 64, 64, seed=0),
        features=random(3, 2, 16, 12, seed=1),
        codes=torch.zeros(3, 2, 16, dtype=torch.long),
        texts=torch.tensor([[0, 1], [2, 3], [4, 4]]),
        tokens=torch.from_numpy(np.array([[text.tokens for text in both] for both in halves])),
        words=torch.from_numpy(np.array([[text.numbers for text in both] for both in halves])),
        written=torch.stack([fill(text.tokens, vocabulary.pad) for text in written]),
        numbers=torch.stack([fill(text.numbers, -1) for text in written]),
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

    class Seen(Exception):
        pass

    def see(tokens, *_):
        raise Seen(tokens)

    monkeypatch.setattr(torch, "rand_like", lambda values: torch.full_like(values, -1.0))
    monkeypatch.setattr(model.describer, "forward", see)
    with pytest.raises(Seen) as shown:
        pretrain(model, batch, vocabulary)
    hidden = shown.value.args[0] == vocabulary.mask
    assert torch.equal(hidden, batch.numbers[:, :-1] != NO_WORD)
    words = vocabulary.decode(batch.written[2, :-1][hidden[2]].tolist())
    assert words.split() == ["a", "dog", "a", "dog"]


def test_no_loss_reaches_what_it_should_not(model, batch, vocabulary):
    losses, counted = pretrain(model, batch, vocabulary)
    assert 0 < counted["places"] < 1
    assert 0 < counted["words"] < 1
    reached = {}
    for name in ("alignment", "reconstruction", "description"):
        assert losses[name].isfinite(), name
        model.zero_grad()
        losses[name].backward(retain_graph=True)
        slopes = {n: weight.grad for n, weight in model.named_parameters()}
        reached[name] = {
            n.partition(".")[0]
            for n, slope in slopes.items()
            if slope is not None and slope.abs().sum() > 0
        }
    assert reached == {
        "alignment": {"noise"},
        "reconstruction": {"noise", "encoder"},
        "description": {"encoder", "describer"},
    }


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_nothing_and_nearly_everything_masked_give_finite_losses(model, batch, vocabulary, share):
    losses, _ = pretrain(model, batch, vocabulary, share)
    sum(losses.values()).backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in model.parameters())


def test_it_learns_three_descriptions_and_writes_them(model, batch, vocabulary):
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(120):
        optimiser.zero_grad()
        model(batch.features, batch.written, pad=vocabulary.pad).backward()
        optimiser.step()
    model.eval()
    ends = {"start": vocabulary.start, "end": vocabulary.end}
    banned = (vocabulary.mask, vocabulary.pad)
    compared = model.compare(batch.features)
    texts = model.describer.generate(compared, length=40, banned=banned, **ends)
    expected = [vocabulary.decode(row.tolist()) for row in batch.written]
    assert [vocabulary.decode(text) for text in texts] == expected


def test_alignment_by_hand():
    """Cosines of 1 and 0 at 0.02: p is one-hot."""
    images, numbers = torch.eye(3), torch.arange(3)
    loss = alignment_loss(5 * images, 2 * images, numbers)
    assert float(loss) == pytest.approx(0, abs=1e-6)
    loss = alignment_loss(images, images.roll(1, 0), numbers)
    assert float(loss) == pytest.approx(2 * math.log(1e8), rel=1e-4)


def test_alignment_spares_equal_texts_as_false_negatives():
    """Rows 0 and 1 have the same text and the same vectors: p is 1/2 for both, and so is q."""
    vectors = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    loss = alignment_loss(vectors, vectors, torch.tensor([7, 7, 9]))
    assert float(loss) == pytest.approx(0, abs=1e-6)
    assert float(alignment_loss(vectors, vectors, torch.tensor([7, 8, 9]))) > 1


def test_alignment_is_not_rounded():
    """Within autocast the loss is that of without it, for vectors in bfloat16 too."""
    images, texts = (random(16, 32, seed=seed).bfloat16() for seed in (0, 1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = alignment_loss(images, texts, torch.arange(16))
    assert loss.dtype == torch.float32
    assert torch.equal(loss, alignment_loss(images, texts, torch.arange(16)))


def test_description_ignores_what_is_not_to_be_learnt():
    logits = torch.zeros(1, 3, 4)
    logits[0, 1, 2] = 1.0
    labels = torch.tensor([[0, 2, namc_file.IGNORED]])
    expected = (math.log(4) + math.log(3 + math.e) - 1) / 2
    assert float(namc_file.prediction_loss(logits, labels)) == pytest.approx(expected)
    ignored = torch.full((1, 3), namc_file.IGNORED)
    assert float(namc_file.prediction_loss(logits, ignored)) == 0
