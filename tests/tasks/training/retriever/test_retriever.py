"""The retriever: q is what it says, its gradient is the expectation's, it moves to what is hard, it
goes on bitwise."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pairwright.schemas.errors import TrainingError
from pairwright.tasks.training.retriever.candidate_pool import NONE
from pairwright.tasks.training.retriever.retriever import START, _contrast, sample, warm_up
from tests.fixtures.graphs import PROPERTY
from tests.fixtures.retrieving import entry, make_retriever

ROWS = [entry(n) for n in range(9)]
BATCH = [0, 3, 5, 8]


def weights_of(retriever):
    return torch.cat(
        [weight.detach().flatten() for weight in retriever.encoder.network.parameters()]
    )


def gradient(retriever, loss):
    found = torch.autograd.grad(
        loss, list(retriever.encoder.network.parameters()), retain_graph=True
    )
    return torch.cat([one.flatten() for one in found])


def test_log_q_is_the_softmax_of_scaled_cosines_over_the_candidates():
    retriever = make_retriever(ROWS, samples=3, logit_scale=50.0, temperature=4.0, candidates=5)
    proposal = retriever.propose(BATCH)
    candidates = retriever.pool.draw(np.array(BATCH), 5, seed=0, step=0)
    pairs, texts = retriever.encoder.pairs(np.array(BATCH)), retriever.encoder.texts(np.arange(9))
    cosines = (pairs @ texts.T).detach().double().numpy()
    for row, place in enumerate(BATCH):
        logits = cosines[row, candidates[row]] * 50 / 4
        log_q = dict(zip(candidates[row], logits - np.log(np.exp(logits).sum()), strict=True))
        assert place not in candidates[row]
        for number, found in zip(proposal.ids[row], proposal.log_q[row].tolist(), strict=True):
            assert found == pytest.approx(log_q[number], abs=1e-5)
        assert proposal.texts[row] == tuple(f"text {number}" for number in proposal.ids[row])
    assert proposal.metrics["retriever/tau"] == 4
    assert proposal.metrics["retriever/scale"] == 50
    assert proposal.metrics["retriever/candidates"] == 5


def test_draws_weights_and_baseline_go_on_bitwise_after_a_reload(tmp_path):
    def run(retriever, steps, seen):
        for step in range(steps):
            proposal = retriever.propose([(3 * step + n) % 9 for n in range(4)])
            seen.append((proposal.texts, proposal.log_q.detach().clone()))
            retriever.learn(proposal, proposal.log_q.detach().exp() + 0.1 * step)

    whole, first, second = (
        make_retriever(ROWS, seed=7, samples=2, baseline="running") for _ in range(3)
    )
    expected, found = [], []
    run(whole, 4, expected)
    run(first, 4, found)
    torch.save(first.state_dict(), tmp_path / "state")
    with torch.no_grad():
        for weight in second.encoder.network.parameters():
            weight.zero_()
    second.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    run(whole, 4, expected)
    run(second, 4, found)
    for (texts, log_q), (others, other) in zip(expected, found, strict=True):
        assert texts == others
        assert torch.equal(log_q, other)
    assert torch.equal(weights_of(whole), weights_of(second))
    assert whole.baseline == second.baseline


def test_a_state_of_another_retriever_is_refused():
    retriever = make_retriever(ROWS)
    for other in (make_retriever(ROWS, projection_dim=16), make_retriever(ROWS[:-1])):
        with pytest.raises(TrainingError, match=r"encoder .*pool"):
            retriever.load_state_dict(other.state_dict())


class Ranks:
    """Average over two threads, as an all-reduce does over two processes."""

    def __init__(self):
        self.barrier, self.given = threading.Barrier(2), {}

    def average(self, rank):
        def average(tensors):
            self.given[rank] = [tensor.clone() for tensor in tensors]
            self.barrier.wait(20)
            for place, tensor in enumerate(tensors):
                tensor.copy_((self.given[0][place] + self.given[1][place]) / 2)
            self.barrier.wait(20)

        return average


def test_ranks_step_alike_also_one_that_has_no_rows():
    """Two ranks end where one does that sees both batches before it steps."""
    ranks, batches = Ranks(), ([0, 3, 5], [1, 2, 4])
    both = [
        make_retriever(ROWS, average=ranks.average(rank), baseline="running") for rank in range(2)
    ]
    alone = make_retriever(ROWS, baseline="running")

    def work(rank):
        proposal = both[rank].propose(batches[rank])
        both[rank].learn(proposal, torch.full((3, 1), 0.5 + rank))
        if rank:
            both[rank].step()
        else:
            both[rank].learn(both[rank].propose([7]), torch.full((1, 1), 2.0))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert torch.equal(weights_of(both[0]), weights_of(both[1]))
    assert both[0].baseline == both[1].baseline
    for rank in range(2):
        alone.drawn = 0
        alone.learn(alone.propose(batches[rank]), torch.full((3, 1), 0.5 + rank), last=bool(rank))
    assert alone.baseline == pytest.approx(0.9 * START + 0.1)
    assert both[0].baseline == pytest.approx(0.9 * alone.baseline + 0.2)


def test_rows_that_may_have_no_negative_teach_nothing():
    rows = [entry(0), *[entry(n, "text 0.") for n in range(1, 4)], entry(9, "other", in_pool=False)]
    retriever = make_retriever(rows, samples=2)
    proposal = retriever.propose([0, 1, 4])
    assert proposal.texts == ((), (), ("text 0", "text 0"))
    assert proposal.ids.tolist() == [[NONE] * 2, [NONE] * 2, [0, 0]]
    before = weights_of(retriever)
    learned = retriever.learn(
        proposal, torch.tensor([[torch.nan] * 2, [torch.nan] * 2, [0.3, 0.3]])
    )
    assert torch.isfinite(weights_of(retriever)).all()
    assert learned["retriever/reward"] == pytest.approx(0.3)
    nothing = retriever.propose([0, 1])
    assert nothing.metrics["retriever/candidates"] == 0
    assert "retriever/reward" not in retriever.learn(nothing, torch.full((2, 2), torch.nan))
    torch.testing.assert_close(weights_of(retriever), before, atol=1e-3, rtol=0)


def test_a_reward_that_is_infinite_stops_the_run():
    retriever = make_retriever(ROWS)
    with pytest.raises(TrainingError, match="finite"):
        retriever.learn(retriever.propose([0]), torch.tensor([[torch.inf]]))


def test_heads_compute_in_float32_whatever_the_policy_does():
    retriever = make_retriever(ROWS)
    expected = retriever.propose(BATCH)
    retriever.drawn = 0
    with torch.autocast("cpu", torch.bfloat16):
        found = retriever.propose(BATCH)
    assert found.log_q.dtype == torch.float32
    assert torch.equal(found.log_q, expected.log_q)


def plain_softmax(logits, present):
    """Return q row by row, of what is there."""
    q = np.zeros(logits.shape)
    for row in range(len(logits)):
        there = np.flatnonzero(present[row])
        if len(there):
            raised = np.exp(logits[row, there] - logits[row, there].max())
            q[row, there] = raised / raised.sum()
    return q


def random_case(seed, rows=5, columns=9):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, columns)) * rng.choice([0.1, 3, 50])
    present = rng.random((rows, columns)) < rng.choice([0.0, 0.3, 1.0], size=(rows, 1))
    return logits, present, rng.random((rows, 4))


@PROPERTY
@given(st.integers(0, 10**9))
def test_q_entropy_and_numbers_are_numpys(seed):
    logits, present, shares = random_case(seed)
    q = plain_softmax(logits, present)
    columns, log_q, found = sample(torch.tensor(logits), torch.tensor(present), shares)
    having = present.any(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(q > 0, q * np.log(q), 0).sum(1)
    np.testing.assert_allclose(found.numpy(), entropy, atol=1e-5)
    for row in np.flatnonzero(having):
        assert present[row, columns[row]].all()
        np.testing.assert_allclose(log_q[row].numpy(), np.log(q[row, columns[row]]), atol=1e-5)
        ends = np.cumsum(q[row])
        for share, column in zip(shares[row], columns[row], strict=True):
            before = ends[column - 1] if column else 0.0
            assert before - 1e-9 <= share * ends[-1] <= ends[column] + 1e-9
    assert (log_q[~torch.tensor(having)] == 0).all()


def logits_of(retriever, places):
    ids = np.array([retriever.pool.positives[place, 0] for place in places])
    with torch.no_grad():
        pairs, texts = retriever.encoder.pairs(places), retriever.encoder.texts(ids)
        return (
            (pairs @ texts.T).double().numpy()
            * retriever.config.logit_scale
            / retriever.config.temperature
        )


def cross_entropy(logits, right, rivals):
    chosen = np.exp(logits[rivals] - logits[right])
    return np.log(chosen.sum())


def test_what_is_as_right_does_not_compete():
    """Rows 0 and 1 have one text, rows 1 and 2 are about one pair, rows 3 and 4 say that nothing
    changed."""
    rows = [
        entry(0, "same"),
        entry(1, "same", pair="p"),
        entry(2, "else", pair="p"),
        entry(3, "as it was"),
    ]
    rows = [replace(row, no_change=row.chosen == "as it was") for row in rows]
    rows += [entry(4, "unchanged", no_change=True), entry(5, "third")]
    retriever = make_retriever(rows)
    first = retriever.pool.positives[:, 0]
    logits = logits_of(retriever, np.arange(6))
    right = {0: {"same"}, 1: {"same", "else"}, 2: {"same", "else"}, 5: {"third"}}
    right |= {row: {"as it was", "unchanged"} for row in (3, 4)}
    texts = [retriever.pool.texts[number] for number in first]
    columns = {text: texts.index(text) for text in set(texts)}
    losses = []
    for n in range(6):
        rivals = [
            column for text, column in columns.items() if text == texts[n] or text not in right[n]
        ]
        losses.append(cross_entropy(logits[n], columns[texts[n]], rivals))
        pairs = [m for m in range(6) if m == n or texts[n] not in right[m]]
        losses[-1] += cross_entropy(logits[:, n], n, pairs)
    loss, _ = _contrast(retriever, np.arange(6))
    assert loss.item() == pytest.approx(np.mean(losses) / 2, abs=1e-5)


def test_pairs_find_their_texts():
    retriever = make_retriever([entry(n) for n in range(40)], projection_dim=32)
    _, before = _contrast(retriever, np.arange(40))
    assert before < 0.3
    assert warm_up(retriever, 200) > 0.9
    found = (
        retriever.logits(np.arange(40), np.broadcast_to(np.arange(40), (40, 40))).argmax(1).numpy()
    )
    assert (found == retriever.pool.positives[:, 0]).mean() > 0.9


def test_held_out_rows_teach_nothing():
    """Also where their texts are some training row's, too."""
    rows, held_out = [entry(n) for n in range(30)], range(30, 60)
    one = make_retriever([*rows, *[entry(n, in_pool=False) for n in held_out]])
    two = make_retriever([*rows, *[entry(n, f"text {n - 30}", in_pool=False) for n in held_out]])
    assert one.pool.texts == two.pool.texts
    warm_up(one, 5)
    warm_up(two, 5)
    for name, weight in one.encoder.network.state_dict().items():
        assert torch.equal(weight, two.encoder.network.state_dict()[name])
