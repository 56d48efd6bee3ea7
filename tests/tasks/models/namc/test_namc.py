import open_clip
import pytest
import torch

from pairwright.tasks.models.namc.describe import Decoding
from pairwright.tasks.models.namc.namc import Described, Namc
from pairwright.tasks.models.namc.noise import Draw, NoiseIdentifier
from pairwright.tasks.models.namc.sizes import NamcSizes
from pairwright.tasks.models.namc.words import ClipWords, learnt_words
from pairwright.tasks.training.losses.namc import IGNORED, align, describe, reconstruct
from tests.fixtures.checkpoints import READING_CLIP, make_clip

TEXTS = [("a red ball", "a basketballing cat"), ("a blue cube on a table", ""), ("a dog", "a dog")]
PARTS = ("noise", "encoder", "describer")


@pytest.fixture(scope="module")
def vocabulary():
    whole = "the difference between the two images is that the first image shows {}, while the second image has {}."
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
        tokens=torch.stack([torch.stack([torch.from_numpy(one.tokens) for one in both]) for both in halves]),
        words=torch.stack([torch.stack([torch.from_numpy(one.numbers) for one in both]) for both in halves]),
        written=torch.stack([filled(one.tokens, longest, vocabulary.pad) for one in written]),
        numbers=torch.stack([filled(one.numbers, longest, -1) for one in written]),
    )


def filled(values, length: int, padding: int) -> torch.Tensor:
    return torch.nn.functional.pad(torch.from_numpy(values), (0, length - len(values)), value=padding)


@pytest.fixture
def model(vocabulary):
    torch.manual_seed(1)
    sizes = NamcSizes(
        width=16, heads=2, places=16, features=12, codes=5, vocabulary=vocabulary.size, length=40, dropout=0.0
    )
    return Namc(sizes, NoiseIdentifier(make_clip(READING_CLIP), width=16))


def draw(image: float = 0.4, text: float = 0.4) -> Draw:
    return Draw(seeds=range(6), image_share=image, text_share=text)


def test_what_is_masked_for_clip_is_masked_for_the_decoder(model, batch, vocabulary):
    """With a share of 1 nearly all words are; those of the template, the verbs and the padding never are."""
    found = model.denoise(batch, model.mask(batch, draw(1, 1)), mask_token=vocabulary.mask)
    assert not found.hidden[batch.numbers == -1].any()
    words = [vocabulary.read(row[hidden].tolist()) for row, hidden in zip(batch.written, found.hidden, strict=True)]
    assert set(words[2].split()) <= {"a", "dog"}
    assert found.hidden.sum() > 10
    assert not model.denoise(batch, model.mask(batch, draw(-3, -3)), mask_token=vocabulary.mask).hidden.any()


def test_no_loss_reaches_what_it_should_not(model, batch, vocabulary):
    found = model.denoise(batch, model.mask(batch, draw()), mask_token=vocabulary.mask)
    labels = batch.written[:, 1:].masked_fill(found.hidden[:, 1:] | (batch.written[:, 1:] == vocabulary.pad), IGNORED)
    codes = torch.zeros(6, 16, dtype=torch.long)
    identity = torch.tensor([0, 1, 2, 3, 4, 2])
    reached = {
        "align": (align(found.images, found.texts, identity), {"noise"}),
        "reconstruct": (reconstruct(found.codes, codes, found.masked), {"noise", "encoder"}),
        "describe": (describe(found.next_tokens, labels), {"encoder", "describer"}),
    }
    for name, (loss, parts) in reached.items():
        assert loss.isfinite(), name
        model.zero_grad()
        loss.backward(retain_graph=True)
        got = {part for part in PARTS for weight in getattr(model, part).parameters() if has_slope(weight)}
        assert got == parts, name
    with_slope = {name for name, weight in model.noise.named_parameters() if has_slope(weight)}
    assert not with_slope  # the description does not go through the masks


def has_slope(weight: torch.Tensor) -> bool:
    return weight.grad is not None and bool(weight.grad.abs().sum() > 0)


@pytest.mark.parametrize("share", [-3.0, 3.0])
def test_nothing_and_everything_masked_give_finite_losses(model, batch, vocabulary, share):
    found = model.denoise(batch, model.mask(batch, draw(share, share)), mask_token=vocabulary.mask)
    assert found.masked.all() if share > 0 else not found.masked.any()
    labels = torch.full_like(batch.written[:, 1:], IGNORED)
    losses = [
        align(found.images, found.texts, torch.arange(6)),
        reconstruct(found.codes, torch.zeros(6, 16, dtype=torch.long), found.masked),
        describe(found.next_tokens, labels),
    ]
    sum(losses).backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in model.parameters())


def test_it_learns_a_description_and_writes_it(model, batch, vocabulary):
    """Fine-tuned on three pairs, it writes their three descriptions, by beams too."""
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    labels = batch.written[:, 1:].masked_fill(batch.written[:, 1:] == vocabulary.pad, IGNORED)
    for _ in range(200):
        optimiser.zero_grad()
        describe(model(batch.features, batch.written), labels).backward()
        optimiser.step()
    model.eval()
    wanted = [vocabulary.read(row.tolist()) for row in batch.written]
    for beams in (1, 3):
        how = Decoding(
            start=vocabulary.start, end=vocabulary.end, length=40, beams=beams, banned=(vocabulary.mask, vocabulary.pad)
        )
        assert [vocabulary.read(row) for row in model.write(batch.features, how)] == wanted


def test_without_its_noise_module_it_is_not_pre_trained(model, batch):
    with pytest.raises(ValueError, match="pre-train"):
        Namc(model.sizes).mask(batch, draw())
