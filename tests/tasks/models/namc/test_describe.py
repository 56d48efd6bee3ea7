import itertools
import math

import pytest
import torch

from pairwright.tasks.models.namc.describe import Decoding, Describer
from pairwright.tasks.models.namc.reconstruct import MaskedImageEncoder
from pairwright.tasks.models.namc.sizes import NamcSizes

SIZES = NamcSizes(width=16, heads=2, places=4, features=6, codes=5, vocabulary=7, length=9, dropout=0.0)
START, END, MASK = 1, 2, 3


@pytest.fixture(scope="module")
def describer():
    torch.manual_seed(3)
    made = Describer(SIZES).eval()
    with torch.no_grad():
        made.words.weight.mul_(40)  # so that its choices are clear
    return made


def compared(rows: int) -> torch.Tensor:
    return 3 * torch.randn(rows, 4, 16, generator=torch.Generator().manual_seed(4))


def decoding(beams: int = 1, length: int = 5) -> Decoding:
    return Decoding(start=START, end=END, banned=(0, MASK), length=length, beams=beams)


def score(describer: Describer, image: torch.Tensor, words: tuple[int, ...]) -> float:
    """Return the log-chance of a description, each step computed anew."""
    total, tokens = 0.0, [START]
    for word in words:
        logits = describer(torch.tensor([tokens]), image)[0, -1]
        logits[[0, MASK]] = -math.inf
        total += logits.log_softmax(0)[word].item()
        tokens.append(word)
    return total


def test_a_token_does_not_see_what_follows(describer):
    one, other = torch.tensor([[START, 4, 5, 6]]), torch.tensor([[START, 4, 6, 5]])
    torch.testing.assert_close(describer(one, compared(1))[:, :2], describer(other, compared(1))[:, :2])


def test_greedy_is_the_likeliest_token_at_each_step(describer):
    found = describer.write(compared(6), decoding())
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


def test_enough_beams_find_the_likeliest_of_all(describer):
    """With more beams than there are descriptions (21 that end, 64 that do not) nothing is pruned."""
    length, words = 3, (START, 4, 5, 6)
    ended = [(*one, END) for size in range(length) for one in itertools.product(words, repeat=size)]
    every = [*ended, *itertools.product(words, repeat=length)]
    found = describer.write(compared(3), decoding(beams=100, length=length))
    for row, written in enumerate(found):
        means = {one: score(describer, compared(3)[row : row + 1], one) / len(one) for one in every}
        assert max(means, key=lambda one: means[one]) == ((*written, END) if len(written) < length else tuple(written))


def test_the_mask_word_is_never_written(describer):
    """With everything else but the end banned, nothing is left to say."""
    only = Decoding(start=START, end=END, banned=(0, 1, MASK, 4, 5, 6), length=4)
    assert describer.write(compared(2), only) == [[], []]


def test_no_more_is_written_than_there_are_places(describer):
    never_ends = Decoding(start=START, end=END, banned=(0, END, MASK), length=100)
    assert [len(one) for one in describer.write(compared(2), never_ends)] == [SIZES.length] * 2


def test_the_default_has_as_many_weights_as_the_paper_says():
    """64.2 M in reconstruction and description, the encoders of CLIP and the CNN aside."""
    with torch.device("meta"):
        parts = (MaskedImageEncoder(NamcSizes()), Describer(NamcSizes()))
        count = sum(weight.numel() for part in parts for weight in part.parameters())
    assert round(count / 1e6, 1) == 64.2
