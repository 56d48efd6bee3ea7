"""What holds for every objective: margins of any size, empty columns, batches in which nothing
counts."""

import math
from dataclasses import replace

import pytest
import torch

from pairwright.schemas.decisions import EDITED
from pairwright.schemas.rows import Negative, PreferenceRow, Turn
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.training.freeze_rows import Needs, RefusedRowError, make_example
from pairwright.tasks.training.losses import (
    CHOSEN,
    IMAGE,
    TEXTS,
    Scored,
    compute_loss,
    loss_of,
    measures_of,
    needs_of,
    rewards_of,
)
from tests.fixtures.rows import row_of
from tests.fixtures.scores import gradient, score, surprise, zeros_like


def config_of(objective, sft_weight=0.0, **own):
    values = {"objective": objective, "sft_weight": sft_weight, **({objective: own} if own else {})}
    return TrainConfig.model_validate(values)


SEVERAL = pytest.param(config_of("dpo", max_negatives=2), id="dpo of several")
BASELINES = [
    pytest.param(config_of("dpo", max_negatives=2, loss_type="hinge"), id="hinge"),
    pytest.param(config_of("dpo", max_negatives=2, ranking="plackett_luce"), id="whole order"),
    pytest.param(config_of("mdpo", anchor=False), id="mdpo without anchor"),
]
LINEAR = [
    *(
        pytest.param(config_of(name), id=name)
        for name in ("dpo", "mdpo", "adavip", "symmpo", "adpo")
    ),
    SEVERAL, *BASELINES
]  # fmt: skip
"""Losses that are about the margin where it is wrong."""
RANKED = [
    *LINEAR,
    pytest.param(config_of("dpo", max_negatives=2, loss_type="ipo"), id="ipo"),
    pytest.param(config_of("dpo", length_normalised=True), id="per token"),
]
every_setting = pytest.mark.parametrize(
    "config", [pytest.param(config_of("sft"), id="sft"), *RANKED]
)


def compute(config, policy):
    return compute_loss(policy, zeros_like(policy), config)


def random_scores(*, seed=0, dtype=torch.float32):
    """Return a batch with every kind of row: complete, without a side, without any, with one text
    less."""
    tokens = [[3, 3, 4, 2], [3, 0, 4, 2], [3, 3, 0, 0], [3, 0, 0, 0], [0, 0, 0, 0], [2, 2, 5, 0]]
    rows = -20 * torch.rand(6, 4, generator=torch.Generator().manual_seed(seed))
    return score(*rows.tolist(), tokens=tokens, dtype=dtype, grad=True)


def test_a_run_needs_what_its_objective_compares():
    several = config_of("dpo", max_negatives=5)
    assert needs_of(several) == Needs(texts=5, images=True, beside=False, rejected_side=True)


@pytest.mark.parametrize(
    ("config", "needs"),
    [
        (config_of("dpo", max_negatives=5), Needs(texts=5, images=True, beside=False)),
        (config_of("adpo"), Needs(texts=1)),
        (config_of("sft"), Needs(every_answer=True)),
    ],
)
def test_held_out_rows_are_measured_by_their_own_rejected_text(config, needs):
    assert measures_of(config) == needs


ROW = row_of(
    PreferenceRow,
    "row",
    source="s",
    prompt=(Turn(role="user", text="What changed?"),),
    images=(b"a", b"b"),
    image_keys=("a", "b"),
    chosen="A ball came.",
    rejected="A ball left.",
    negatives=(Negative(text="A cube came.", maker="other pair", note="", score=0.0),),
    rejected_images=(b"a", b"c"),
    rejected_image_maker="removal",
)
WITHOUT_TEXT = replace(ROW, rejected="", negatives=())


@pytest.mark.parametrize(
    ("config", "both", "without_text"),
    [
        (config_of("sft"), (0, 0), (0, 0)),
        (config_of("dpo", max_negatives=2), (2, 0), (0, 2)),
        (config_of("mdpo"), (1, 2), (0, 2)),
        (config_of("adavip"), (1, 2), (0, 2)),
        (config_of("adpo"), (0, 0), (0, 0)),
    ],
)
def test_rejected_texts_and_images_are_shown_where_they_are_used(config, both, without_text):
    examples = [make_example(row, needs_of(config)) for row in (ROW, WITHOUT_TEXT)]
    counts = [(len(example.rejected), len(example.rejected_images)) for example in examples]
    assert counts == [both, without_text]


def test_a_pair_in_the_other_order_has_the_swapped_text():
    needs = needs_of(config_of("symmpo"))
    swapped = Negative(text="A ball left.", maker="swapped", note="", score=0.0)
    other = replace(ROW, rejected="A cube came.", negatives=(swapped,))
    example = make_example(other, needs)
    assert (example.rejected, example.exchanged) == (("A cube came.",), "A ball left.")
    assert example.rejected_images == (b"b", b"a")
    first = make_example(replace(ROW, rejected_maker="swapped"), needs)
    assert (first.rejected, first.exchanged) == (("A cube came.",), "A ball left.")
    edited = replace(other, chosen_model=f"m, {EDITED}")
    assert make_example(edited, needs).exchanged == ""  # of another chosen text


def test_white_space_around_answers_is_nothing_to_learn():
    negatives = (replace(ROW.negatives[0], text=" A ball left."),)
    row = replace(ROW, chosen="A ball came.\n", rejected=" A ball came.", negatives=negatives)
    example = make_example(row, needs_of(config_of("dpo", max_negatives=2)))
    assert (example.chosen, example.rejected) == ("A ball came.", ("A ball left.",))


def turns(*texts):
    return tuple(Turn(role=("user", "assistant")[n % 2], text=text) for n, text in enumerate(texts))


def test_sft_learns_every_answer_of_a_conversation_and_the_others_the_last():
    row = replace(ROW, prompt=turns("Sum up.", "A ball came.", "Which?"), chosen="B")
    sft, dpo = (make_example(row, needs_of(config_of(name))) for name in ("sft", "dpo"))
    assert (sft.turns, sft.chosen) == (turns("Sum up."), "A ball came.")
    assert sft.then == turns("Which?", "B")
    assert (dpo.turns, dpo.chosen, dpo.then) == (row.prompt, "B", ())
    assert sft.conversation == dpo.conversation == (*row.prompt, Turn(role="assistant", text="B"))


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        (turns("Sum up.", " ", "Which?"), "an empty turn"),
        (turns("Sum up.", "A ball came.", "And in <image>?"), "an image behind the first answer"),
        (turns("Sum up.", "A ball.", "Which?", "A.", "One?") + turns("Two?"), "do not alternate"),
    ],
)
def test_a_conversation_that_cannot_be_learned_whole_is_refused(prompt, reason):
    row = replace(ROW, prompt=prompt, image_keys=("a",))
    with pytest.raises(RefusedRowError, match=reason):
        make_example(row, needs_of(config_of("sft")))


@every_setting
def test_what_is_not_taken_of_a_row_does_not_matter(config):
    needs = needs_of(config)
    policy = random_scores()
    (slope,) = torch.autograd.grad(compute(config, policy).value, policy.logps)
    texts = 2 if config.objective == "adpo" else needs.texts  # ADPO's texts are the retriever's
    assert not slope[:, TEXTS + texts :].any()
    both = policy.present[:, [IMAGE, TEXTS]].all(1)
    assert slope[both, IMAGE].any() == (needs.images and needs.beside)
    assert slope[~policy.present[:, TEXTS], IMAGE].any() == needs.images
    assert slope[:, CHOSEN].any()


def far(margin):
    """Return scores such that 0.1, beta, times the difference of two is the margin."""
    policy = random_scores()
    shift = torch.zeros_like(policy.logps)
    shift[:, CHOSEN] = margin / 0.1
    return Scored(logps=(policy.logps.detach() + shift).requires_grad_(), tokens=policy.tokens)


@every_setting
@pytest.mark.parametrize("margin", [1e4, -1e4])
def test_large_margins_are_finite(config, margin):
    policy = far(margin)
    loss = compute(config, policy)
    (slope,) = torch.autograd.grad(loss.value, policy.logps)
    assert loss.value.isfinite()
    assert slope.isfinite().all()
    assert torch.stack(list(loss.metrics.values())).isfinite().all()


@pytest.mark.parametrize("config", LINEAR)
def test_a_large_margin_that_is_wrong_is_a_large_loss(config):
    assert compute(config, far(-1e4)).value > 9e3 > compute(config, far(1e4)).value


@every_setting
@pytest.mark.parametrize("columns", [1, 2, 4])
def test_a_batch_in_which_nothing_counts(config, columns):
    policy = score([None] * columns, [None] * columns, dtype=torch.float32, grad=True)
    loss = compute(config, policy)
    assert (loss.value.item(), loss.metrics) == (0, {})
    (slope,) = torch.autograd.grad(loss.value, policy.logps)
    assert not slope.any()


@every_setting
def test_an_empty_column_more_or_less_changes_nothing(config):
    narrow, wide = (
        compute(config, score([-2.0, None, -5.0, *empty], [-4.0, None, -2.0, *empty]))
        for empty in ([], [None])
    )
    assert (narrow.value, narrow.metrics) == (wide.value, wide.metrics)


@pytest.mark.parametrize("config", RANKED)
def test_a_batch_is_the_mean_of_its_examples_that_count(config):
    """But for SFT over tokens."""
    policy = random_scores()
    rows = [Scored(logps=policy.logps[[n]], tokens=policy.tokens[[n]]) for n in range(6)]
    counting = [value for row in rows if (value := compute(config, row).value.item())]
    assert compute(config, policy).value.item() == pytest.approx(sum(counting) / len(counting))


@pytest.mark.parametrize("objective", ["adavip", "mdpo", "dpo"])
def test_a_row_with_one_side_has_plain_dpo_on_it(objective):
    policy = score([-2.0, None, -5.0], [-2.0, -7.0, None], [-2.0, None, None], grad=True)
    reference = score([-3.0, None, -4.5], [-3.0, -6.0, None], [-3.0, None, None])
    loss = compute_loss(policy, reference, config_of(objective, beta=0.3))
    assert loss.value.item() == pytest.approx((surprise(0.45) + surprise(0.6)) / 2, abs=1e-12)
    assert gradient(loss, policy)[2] == [0, 0, 0]
    assert not any(name.startswith("weight/") for name in loss.metrics)


@pytest.mark.parametrize("objective", ["dpo", "mdpo", "adavip", "adpo"])
def test_sft_term_is_mean_nll_per_token_of_chosen_texts(objective):
    # Chosen texts of 2 and 5 tokens: (6 / 2 + 10 / 5) / 2 = 2.5; "nll", over all tokens, is 16 / 7.
    tokens = [[2, 0, 3], [5, 0, 4]]
    policy = score([-6.0, None, -5.0], [-10.0, None, -7.0], tokens=tokens, grad=True)
    plain, beside = (compute(config_of(objective, weight), policy) for weight in (0, 0.4))
    difference = beside.value - plain.value
    assert difference.item() == pytest.approx(0.4 * 2.5)
    assert [loss.metrics["nll"].item() for loss in (plain, beside)] == pytest.approx([16 / 7] * 2)
    (slope,) = torch.autograd.grad(difference, policy.logps)
    assert slope.flatten().tolist() == pytest.approx([-0.1, 0, 0, -0.04, 0, 0])


def test_what_is_absent_is_0_whatever_a_model_gave_it():
    policy = score([-2.0, math.nan, math.inf], tokens=[[1, 0, 0]], grad=True)
    rewards = rewards_of(policy, score([-1.0, math.nan, None], tokens=[[1, 0, 0]]), beta=1.0)
    values = torch.cat([rewards.chosen[:, None], rewards.image[:, None], rewards.texts], 1)
    assert values.tolist() == [[-1.0, 0.0, 0.0]]
    assert rewards.logps.tolist() == [[-2.0, 0.0, 0.0]]
    (slope,) = torch.autograd.grad(values.sum(), policy.logps)
    assert slope.tolist() == [[1.0, 0.0, 0.0]]


def test_a_loss_that_is_no_number_is_not_hidden():
    counts, values = torch.tensor([True, True]), torch.tensor([1.0, math.nan])
    loss = loss_of(values, counts, {"margin": (values, counts)})
    assert loss.value.isnan()
    assert loss.metrics["margin"].isnan()
