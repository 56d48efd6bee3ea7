"""The same log-probabilities give the same loss and the same gradient as in TRL's DPO trainer."""

from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from trl import DPOTrainer

from pairwright.schemas.training import DpoConfig
from pairwright.tasks.training.losses.objectives import dpo
from pairwright.tasks.training.losses.rewards import Scored

LENGTHS = torch.tensor([5, 3, 6, 2, 7, 4])
"""Of three chosen and three rejected texts, behind a prompt of two tokens."""
STEPS = torch.arange(9)
MASK = ((STEPS >= 2) & STEPS.lt(2 + LENGTHS[:, None])).long()


class Table(torch.nn.Module):
    """Give log-probabilities from a table, as TRL has them from a model: one per token, 0 where there is no answer."""

    is_gradient_checkpointing = False

    def __init__(self, logps):
        super().__init__()
        self.logps = torch.nn.Parameter(logps)

    def forward(self, **_):
        nothing = torch.zeros_like(self.logps)
        return SimpleNamespace(
            log_probs=self.logps * MASK[:, 1:], entropy=nothing, mean_logits=nothing, is_top1=MASK[:, 1:] > 1
        )


def tables():
    generator = torch.Generator().manual_seed(0)
    return (Table(-4 * torch.rand(6, 8, generator=generator)) for _ in range(2))


def losses_of_trl(policy, reference, *, kind, smoothing=0.0):
    """Return what its trainer computes, without the loading of a model that its constructor insists on."""
    trainer = DPOTrainer.__new__(DPOTrainer)
    settings = {"beta": 0.3, "loss_types": [kind], "loss_weights": [1.0], "label_smoothing": smoothing}
    fixed = {"f_divergence_type": "reverse_kl", "ld_alpha": None, "use_weighting": False, "aux_loss_enabled": False}
    counted = {"_metrics": {"train": defaultdict(list)}, "_total_train_tokens": 0, "_tp_size": 1}
    trainer.__dict__ |= settings | fixed | counted
    trainer.__dict__ |= {"model": policy, "ref_model": reference, "precompute_ref_logps": False}
    trainer.__dict__ |= {
        "accelerator": Accelerator(cpu=True),
        "args": SimpleNamespace(gradient_checkpointing_kwargs=None),
    }
    inputs = {"input_ids": torch.ones_like(MASK), "attention_mask": MASK, "completion_mask": MASK}
    loss = trainer._compute_loss(policy, inputs, return_outputs=False)
    return loss, {name: values[0] for name, values in trainer._metrics["train"].items() if values}


def scored_of(table):
    chosen, rejected = (table.logps * MASK[:, 1:]).sum(1).chunk(2)
    first, second = LENGTHS.chunk(2)
    none = torch.zeros(3)
    return Scored(logps=torch.stack([chosen, none, rejected], 1), tokens=torch.stack([first, none.long(), second], 1))


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("sigmoid", {}),
        ("sigmoid", {"max_negatives": 4}),
        ("ipo", {"loss_type": "ipo", "length_normalised": True}),
        ("sigmoid_norm", {"length_normalised": True}),
    ],
)
def test_loss_and_gradient(kind, changes):
    policy, reference = tables()
    wanted, metrics = losses_of_trl(policy, reference, kind=kind)
    (slope,) = torch.autograd.grad(wanted, policy.logps)
    loss = dpo(scored_of(policy), scored_of(reference), DpoConfig(beta=0.3, **changes))
    (got,) = torch.autograd.grad(loss.value, policy.logps)
    torch.testing.assert_close(loss.value, wanted, rtol=0, atol=1e-6)
    torch.testing.assert_close(got, slope, rtol=0, atol=1e-6)
    assert slope.abs().max() > 1e-3
    assert metrics["rewards/accuracies"] == loss.metrics["accuracy"].item()
    if kind == "sigmoid":
        for ours, theirs in (
            ("reward/chosen", "rewards/chosen"),
            ("margin", "rewards/margins"),
            ("logp/rejected", "logps/rejected"),
        ):
            assert loss.metrics[ours].item() == pytest.approx(metrics[theirs], rel=1e-6)


def test_smoothed_labels():
    # TRL has smoothing only in "robust" DPO, which is unbiased: ((1 - e) l(M) - e l(-M)) / (1 - 2 e).
    policy, reference = tables()
    robust, _ = losses_of_trl(policy, reference, kind="robust", smoothing=0.1)
    plain, _ = losses_of_trl(policy, reference, kind="sigmoid")
    # Of the two, l(-M): then the conservative loss is (1 - e) l(M) + e l(-M).
    flipped = (0.9 * plain - 0.8 * robust) / 0.1
    smoothed = dpo(scored_of(policy), scored_of(reference), DpoConfig(beta=0.3, label_smoothing=0.1)).value
    torch.testing.assert_close(smoothed, 0.9 * plain + 0.1 * flipped, rtol=0, atol=1e-5)
