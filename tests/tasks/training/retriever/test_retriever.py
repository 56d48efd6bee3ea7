"""The retriever: q is what it says, its gradient is the expectation's, it moves to what is hard, it
goes on bitwise."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from pairwright.schemas.errors import TrainingError
from pairwright.tasks.training.retriever.candidate_pool import NONE
from pairwright.tasks.training.retriever.retriever import START, _contrast, sample, warm_up
from tests.fixtures.retrieving import entry, make_retriever, weights_of

ROWS = [entry(number) for number in range(9)]
BATCH = [0, 3, 5, 8]


def test_log_q_is_the_softmax_of_scaled_cosines_over_the_candidates():
    retriever = make_retriever(ROWS, samples=3, logit_scale=50.0, temperature=4.0, candidates=5)
    proposal = retriever.propose(BATCH)
    candidates = retriever.pool.draw(np.array(BATCH), 5, seed=0, step=0)
    pairs, texts = (
        retriever.encoder.encode_pairs(np.array(BATCH)),
        retriever.encoder.texts(np.arange(9)),
    )
    cosines = (pairs @ texts.T).detach().double().numpy()
    for row, position in enumerate(BATCH):
        assert position not in candidates[row]
        logits = cosines[row] * 50 / 4
        normaliser = np.log(np.exp(logits[candidates[row]]).sum())
        ids = proposal.ids[row]
        assert set(ids) <= set(candidates[row])
        np.testing.assert_allclose(
            proposal.log_q[row].tolist(), logits[ids] - normaliser, atol=1e-5, rtol=0
        )
        assert proposal.texts[row] == tuple(f"text {number}" for number in ids)
    logged = {"retriever/tau": 4, "retriever/scale": 50, "retriever/candidates": 5}
    assert logged.items() <= proposal.metrics.items()


def test_draws_weights_and_baseline_go_on_bitwise_after_a_reload(tmp_path):
    def run(retriever):
        draws = []
        for step in range(4):
            proposal = retriever.propose([(3 * step + n) % 9 for n in range(4)])
            draws.append((proposal.texts, proposal.log_q.tolist()))
            retriever.learn(proposal, proposal.log_q.detach().exp() + 0.1 * step)
        return draws

    whole, first, second = (
        make_retriever(ROWS, seed=7, samples=2, baseline="running") for _ in range(3)
    )
    assert run(whole) == run(first)
    torch.save(first.state_dict(), tmp_path / "state")
    with torch.no_grad():
        for weight in second.encoder.network.parameters():
            weight.zero_()
    second.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    assert run(whole) == run(second)
    assert torch.equal(weights_of(whole), weights_of(second))
    assert whole.baseline == second.baseline


@pytest.mark.parametrize(("rows", "size"), [(ROWS, 16), (ROWS[:-1], 8)])
def test_a_state_of_another_retriever_is_refused(rows, size):
    other = make_retriever(rows, projection_dim=size)
    with pytest.raises(TrainingError, match=r"encoder .*pool"):
        make_retriever(ROWS).load_state_dict(other.state_dict())


class Ranks:
    """Average over two threads, as an all-reduce does over two processes."""

    def __init__(self):
        self.barrier, self.given = threading.Barrier(2), {}

    def average(self, rank):
        def average(tensors):
            self.given[rank] = [tensor.clone() for tensor in tensors]
            self.barrier.wait(20)
            for position, tensor in enumerate(tensors):
                tensor.copy_((self.given[0][position] + self.given[1][position]) / 2)
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
    rewards = torch.tensor([[torch.nan] * 2, [torch.nan] * 2, [0.3, 0.3]])
    assert retriever.learn(proposal, rewards)["retriever/reward"] == pytest.approx(0.3)
    assert torch.isfinite(weights_of(retriever)).all()
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
    expected = retriever.propose(BATCH).log_q
    retriever.drawn = 0
    with torch.autocast("cpu", torch.bfloat16):
        log_q = retriever.propose(BATCH).log_q
    assert log_q.dtype == torch.float32
    assert torch.equal(log_q, expected)


@pytest.mark.parametrize("seed", range(3))
def test_q_entropy_and_draws_are_numpys(seed):
    """Rows of every sharpness, with all, some and none of the candidates."""
    rng = np.random.default_rng(seed)
    rows, columns = 200, 9
    logits = rng.normal(size=(rows, columns)) * rng.choice([0.1, 3, 50], size=(rows, 1))
    present = rng.random((rows, columns)) < rng.choice([0.0, 0.3, 1.0], size=(rows, 1))
    shares = rng.random((rows, 4))
    drawn, log_q, entropies = sample(torch.tensor(logits), torch.tensor(present), shares)
    log_q, having = log_q.numpy(), present.any(1)
    assert not log_q[~having].any()
    assert 0 < having.sum() < rows
    for row in np.flatnonzero(having):
        raised = np.exp(logits[row] - logits[row, present[row]].max()) * present[row]
        q = raised / raised.sum()
        assert present[row, drawn[row]].all()
        np.testing.assert_allclose(log_q[row], np.log(q[drawn[row]]), atol=1e-5)
        positive = q[q > 0]
        assert entropies[row] == pytest.approx(-(positive * np.log(positive)).sum(), abs=1e-5)
        ends = np.append(0, np.cumsum(q))
        assert (ends[drawn[row]] - 1e-9 <= shares[row] * ends[-1]).all()
        assert (shares[row] * ends[-1] <= ends[drawn[row] + 1] + 1e-9).all()


def logits_of(retriever, places):
    ids = np.array([retriever.pool.positives[position, 0] for position in places])
    with torch.no_grad():
        pairs, texts = retriever.encoder.encode_pairs(places), retriever.encoder.texts(ids)
        cosines = (pairs @ texts.T).double().numpy()
    return cosines * retriever.config.logit_scale / retriever.config.temperature


def cross_entropy(logits, right, rivals):
    return np.log(np.exp(logits[rivals] - logits[right]).sum())


def test_what_is_as_right_does_not_compete():
    """Rows 0 and 1 have one text, rows 1 and 2 are about one pair, rows 3 and 4 say that nothing
    changed."""
    rows = [entry(0, "same"), entry(1, "same", pair="p"), entry(2, "else", pair="p")]
    rows += [
        entry(3 + n, text, no_change=True) for n, text in enumerate(("as it was", "unchanged"))
    ]
    rows += [entry(5, "third")]
    retriever = make_retriever(rows)
    logits = logits_of(retriever, np.arange(6))
    right = {0: {"same"}, 1: {"same", "else"}, 2: {"same", "else"}, 5: {"third"}}
    right |= {row: {"as it was", "unchanged"} for row in (3, 4)}
    texts = [retriever.pool.texts[number] for number in retriever.pool.positives[:, 0]]
    columns = {text: texts.index(text) for text in set(texts)}
    losses = []
    for n, own in enumerate(texts):
        rivals = [
            position for text, position in columns.items() if text == own or text not in right[n]
        ]
        pairs = [m for m in range(6) if m == n or own not in right[m]]
        losses.append(cross_entropy(logits[n], columns[own], rivals))
        losses[-1] += cross_entropy(logits[:, n], n, pairs)
    loss, _ = _contrast(retriever, np.arange(6))
    assert loss.item() == pytest.approx(np.mean(losses) / 2, abs=1e-5)


def test_pairs_find_their_texts():
    retriever = make_retriever([entry(n) for n in range(20)], projection_dim=32)
    everything = np.arange(20)
    _, before = _contrast(retriever, everything)
    assert before < 0.3
    assert warm_up(retriever, 100) > 0.9
    nearest = retriever.logits(everything, np.broadcast_to(everything, (20, 20))).argmax(1).numpy()
    assert (nearest == retriever.pool.positives[:, 0]).mean() > 0.9


def test_held_out_rows_teach_nothing():
    """Also where their texts are some training row's, too."""
    rows, held_out = [entry(n) for n in range(10)], [entry(n, in_pool=False) for n in range(10, 20)]
    first = make_retriever([*rows, *held_out])
    second = make_retriever(
        rows + [replace(row, chosen=f"text {position}") for position, row in enumerate(held_out)]
    )
    assert first.pool.texts == second.pool.texts
    warm_up(first, 5)
    warm_up(second, 5)
    assert torch.equal(weights_of(first), weights_of(second))
