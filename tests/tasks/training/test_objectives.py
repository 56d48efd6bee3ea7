"""What holds for every objective: margins of any size, empty columns, batches in which nothing
counts."""

import math
from dataclasses import replace

import pytest
import torch

from pairwright.schemas.rows import Negative, PreferenceRow, Turn
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.training.freeze_rows import Needs, RefusedRowError, make_example
from pairwright.tasks.training.losses import (
    CHOSEN,
    IMAGE,
    NEEDS,
    TEXTS,
    Scored,
    compute_loss,
    loss_of,
    measures_of,
    needs_of,
    rewards_of,
)
from tests.fixtures.scores import gradient, score, surprise, zeros_like

SETTINGS = [
    {"objective": "sft"},
    {"objective": "dpo"},
    {"objective": "dpo", "dpo": {"max_negatives": 2}},
    {"objective": "mdpo"},
    {"objective": "adavip"},
    {"objective": "adpo"},
]


CONFIGS = [
    pytest.param(TrainConfig.model_validate({**each, "sft_weight": 0}), id=str(each))
    for each in SETTINGS
]
every_setting = pytest.mark.parametrize("config", CONFIGS)


def compute(config, policy):
    return compute_loss(policy, zeros_like(policy), config)


def random_scores(*, seed=0, dtype=torch.float32):
    """Return a batch with every kind of row: complete, without a side, without any, with one text
    less."""
    tokens = [[3, 3, 4, 2], [3, 0, 4, 2], [3, 3, 0, 0], [3, 0, 0, 0], [0, 0, 0, 0], [2, 2, 5, 0]]
    rows = -20 * torch.rand(6, 4, generator=torch.Generator().manual_seed(seed))
    return score(*rows.tolist(), tokens=tokens, dtype=dtype, grad=True)


def test_what_is_measured_of_a_held_out_row():
    """As what is trained on, of any row; and where there is a margin, it is to the row's own
    rejected text."""
    several = TrainConfig.model_validate({"objective": "dpo", "dpo": {"max_negatives": 5}})
    assert needs_of(several) == Needs(texts=5, images=True, beside=False, rejected_side=True)
    assert measures_of(several) == Needs(texts=5, images=True, beside=False)
    assert measures_of(TrainConfig(objective="adpo")) == Needs(texts=1)
    assert measures_of(TrainConfig(objective="sft")) == Needs(every_answer=True)


NEGATIVE = Negative(text="A cube came.", maker="other pair", note="", score=0.0)
ROW = PreferenceRow(
    key="k",
    source_key="s",
    subject="p",
    prompt=(Turn(role="user", text="What changed?"),),
    images=(b"a", b"b"),
    image_keys=("a", "b"),
    chosen="A ball came.",
    chosen_model="m",
    rejected="A ball left.",
    rejected_maker="swap",
    rejected_note="",
    negatives=(NEGATIVE,),
    rejected_images=(b"a", b"c"),
    removal_scores=(),
    component="c",
    split="train",
    sources=("x",),
    licences=("",),
    rejected_image_maker="removal",
)


def test_rejected_images_are_shown_where_they_are_used():
    without_text = replace(ROW, rejected="", negatives=())
    taken = {}
    for name in NEEDS.keys() - {"namc"}:
        needs = needs_of(
            TrainConfig.model_validate({"objective": name, "dpo": {"max_negatives": 2}})
        )
        examples = [make_example(row, needs) for row in (ROW, without_text)]
        taken[name] = [
            (len(example.rejected), len(example.rejected_images)) for example in examples
        ]
    # (rejected texts, rejected images) of the row with both, and of the one without a text
    nothing, joined = [(0, 0), (0, 0)], [(1, 2), (0, 2)]
    assert taken == {
        "sft": nothing,
        "dpo": [(2, 0), (0, 2)],
        "mdpo": joined,
        "adavip": joined,
        "adpo": nothing,
    }


def turns(*texts):
    return tuple(Turn(role=("user", "assistant")[n % 2], text=text) for n, text in enumerate(texts))


def test_sft_learns_every_answer_of_a_conversation_and_the_others_the_last():
    row = replace(ROW, prompt=turns("Sum up.", "A ball came.", "Which?"), chosen="B")
    sft, dpo = (make_example(row, needs_of(TrainConfig(objective=name))) for name in ("sft", "dpo"))
    assert (sft.turns, sft.chosen, sft.then) == (
        turns("Sum up."),
        "A ball came.",
        turns("Which?", "B"),
    )
    assert (dpo.turns, dpo.chosen, dpo.then) == (row.prompt, "B", ())
    assert sft.conversation == dpo.conversation == (*row.prompt, Turn(role="assistant", text="B"))


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        (turns("Sum up.", " ", "Which?"), "an empty turn"),
        (turns("Sum up.", "A ball came.", "And in <image>?"), "an image behind the first answer"),
        (
            (*turns("Sum up.", "A ball."), *turns("Which?", "A."), *turns("One?"), *turns("Two?")),
            "do not alternate",
        ),
    ],
)
def test_a_conversation_that_cannot_be_learned_whole_is_refused(prompt, reason):
    with pytest.raises(RefusedRowError, match=reason):
        make_example(
            replace(ROW, prompt=prompt, image_keys=("a",)), needs_of(TrainConfig(objective="sft"))
        )


@every_setting
def test_what_is_not_taken_of_a_row_does_not_matter(config):
    # ADPO's texts are the retriever's.
    needs = needs_of(config)
    policy = random_scores()
    (slope,) = torch.autograd.grad(compute(config, policy).value, policy.logps)
    texts = TEXTS + (2 if config.objective == "adpo" else needs.texts)
    assert not slope[:, texts:].any()
    both = policy.present[:, [IMAGE, TEXTS]].all(1)
    assert slope[both, IMAGE].any() == (needs.images and needs.beside)
    assert slope[~policy.present[:, TEXTS], IMAGE].any() == needs.images
    assert slope[:, CHOSEN].any()


@every_setting
@pytest.mark.parametrize("margin", [1e4, -1e4])
def test_large_margins(config, margin):
    # Log-probabilities such that beta times the difference is the margin.
    policy = random_scores()
    shift = torch.zeros_like(policy.logps)
    shift[:, CHOSEN] = margin / 0.1
    far = Scored(logps=(policy.logps.detach() + shift).requires_grad_(), tokens=policy.tokens)
    loss = compute(config, far)
    (slope,) = torch.autograd.grad(loss.value, far.logps)
    assert loss.value.isfinite()
    assert slope.isfinite().all()
    assert torch.stack(list(loss.metrics.values())).isfinite().all()
    if config.objective != "sft":
        assert (loss.value > 9e3) == (margin < 0)


@every_setting
@pytest.mark.parametrize("columns", [1, 2, 4])
def test_a_batch_in_which_nothing_counts(config, columns):
    policy = score([None] * columns, [None] * columns, dtype=torch.float32, grad=True)
    loss = compute(config, policy)
    assert loss.value.item() == 0
    assert loss.metrics == {}
    (slope,) = torch.autograd.grad(loss.value, policy.logps)
    assert not slope.any()


@every_setting
def test_an_empty_column_more_or_less_changes_nothing(config):
    narrow, wide = (
        score([-2.0, None, -5.0], [-4.0, None, -2.0]),
        score([-2.0, None, -5.0, None], [-4.0, None, -2.0, None]),
    )
    first, second = compute(config, narrow), compute(config, wide)
    assert first.value == second.value
    assert first.metrics == second.metrics


@pytest.mark.parametrize("config", CONFIGS[1:])
def test_examples_are_apart(config):
    # But for SFT over tokens, a batch is the mean of its examples alone, of those that count.
    policy = random_scores()
    alone = [
        compute(config, Scored(logps=policy.logps[[n]], tokens=policy.tokens[[n]]))
        for n in range(6)
    ]
    counting = [value for loss in alone if (value := loss.value.item())]
    assert compute(config, policy).value.item() == pytest.approx(sum(counting) / len(counting))


@pytest.mark.parametrize("objective", ["adavip", "mdpo", "dpo"])
def test_a_row_with_one_side_has_plain_dpo_on_it(objective):
    rows = [[-2.0, None, -5.0], [-2.0, -7.0, None], [-2.0, None, None]]
    references = [[-3.0, None, -4.5], [-3.0, -6.0, None], [-3.0, None, None]]
    policy = score(*rows, grad=True)
    given = {"objective": objective, objective: {"beta": 0.3}, "sft_weight": 0}
    config = TrainConfig.model_validate(given)
    loss = compute_loss(policy, score(*references), config)
    assert loss.value.item() == pytest.approx((surprise(0.45) + surprise(0.6)) / 2, abs=1e-12)
    assert gradient(loss, policy)[2] == [0, 0, 0]
    assert not any(name.startswith("weight/") for name in loss.metrics)


@pytest.mark.parametrize("objective", ["dpo", "mdpo", "adavip", "adpo"])
def test_sft_term_is_mean_nll_per_token_of_chosen_texts(objective):
    # Chosen texts of 2 and 5 tokens: (6 / 2 + 10 / 5) / 2 = 2.5; "nll", over all tokens, is 16 / 7.
    policy = score(
        [-6.0, None, -5.0], [-10.0, None, -7.0], tokens=[[2, 0, 3], [5, 0, 4]], grad=True
    )
    plain, beside = (
        compute(TrainConfig.model_validate({"objective": objective, "sft_weight": weight}), policy)
        for weight in (0, 0.4)
    )
    assert (beside.value - plain.value).item() == pytest.approx(0.4 * 2.5)
    assert [loss.metrics["nll"].item() for loss in (plain, beside)] == pytest.approx([16 / 7] * 2)
    slope = torch.autograd.grad(beside.value - plain.value, policy.logps)[0]
    assert slope.flatten().tolist() == pytest.approx([-0.1, 0, 0, -0.04, 0, 0])


def test_what_is_absent_is_0_whatever_a_model_gave_it():
    policy = score([-2.0, math.nan, math.inf], tokens=[[1, 0, 0]], grad=True)
    rewards = rewards_of(policy, score([-1.0, math.nan, None], tokens=[[1, 0, 0]]), beta=1.0)
    got = torch.cat([rewards.chosen[:, None], rewards.image[:, None], rewards.texts], 1)
    assert got.tolist() == [[-1.0, 0.0, 0.0]]
    assert rewards.logps.tolist() == [[-2.0, 0.0, 0.0]]
    (gradient,) = torch.autograd.grad(got.sum(), policy.logps)
    assert gradient.tolist() == [[1.0, 0.0, 0.0]]


def test_a_loss_that_is_no_number_is_not_hidden():
    counts = torch.tensor([True, True])
    loss = loss_of(
        torch.tensor([1.0, math.nan]), counts, {"margin": (torch.tensor([1.0, math.nan]), counts)}
    )
    assert loss.value.isnan()
    assert loss.metrics["margin"].isnan()
