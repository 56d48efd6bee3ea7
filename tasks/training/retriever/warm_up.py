"""Teach a new retriever which text belongs to which pair, before it proposes anything (ours).

CLIP4IDC, which the paper's retriever follows, is trained so: of a batch's texts, each pair must find its own, and each
text its pair. New heads would begin with negatives that have nothing to do with the pair, and REINFORCE learns slowly;
after this, q prefers texts that are like the pair's own. Needs PyTorch; some seconds on a CPU.
"""

import logging
import time
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn import functional

from pairwright.tasks.training.retriever.counters import draw_bits, marks_of
from pairwright.tasks.training.retriever.pool import NONE, Places, Pool

if TYPE_CHECKING:
    from pairwright.tasks.training.retriever.retriever import Retriever

log = logging.getLogger(__name__)
BATCH, SMALL_BATCH = 256, 32
"""The second where each row costs passes of a tower."""
RATE, SLOW_RATE = 1e-3, 1e-4


def warm_up(retriever: "Retriever", steps: int) -> float:
    """Train the encoder for some steps; return the share of pairs that found their text in the last one."""
    pool = retriever.pool
    groups = retriever.encoder.groups(SLOW_RATE if retriever.encoder.wants_pixels else RATE)
    optimiser = torch.optim.Adam(groups, fused=True)
    rows = np.flatnonzero(pool.trained & (pool.own != NONE).any(1))
    size = min(SMALL_BATCH if retriever.encoder.wants_pixels else BATCH, len(rows))
    began, found = time.monotonic(), 0.0
    for step in range(steps if len(rows) > 1 and len(pool.texts) > 1 else 0):
        places = _draw_rows(rows, size, seed=retriever.seed, step=step)
        loss, found = _contrast(retriever, places)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    if retriever.average:
        with torch.no_grad():
            retriever.average([weight.data for group in groups for weight in group["params"]])
    log.info("retriever: %d steps of warm-up, %.0f %% found, %.1f s", steps, 100 * found, time.monotonic() - began)
    return found


def _contrast(retriever: "Retriever", places: Places) -> "tuple[torch.Tensor, float]":
    """Return the symmetric cross-entropy of a batch, and the share of pairs whose own text has the highest logit."""
    ids, columns, free = _texts_of(retriever.pool, places)
    candidates = np.broadcast_to(ids, (len(places), len(ids)))
    logits = retriever.logits(places, candidates)
    target = torch.from_numpy(columns).to(logits.device)
    wrong = torch.from_numpy(free).to(logits.device)
    owners = torch.arange(len(places), device=logits.device)
    least = torch.finfo(logits.dtype).min
    kept = wrong.clone()
    kept[owners, target] = True
    to_texts = logits.masked_fill(~kept, least)
    # Of several pairs for which one text is right, none is a rival of another.
    rival = wrong[:, target] | (owners[:, None] == owners)
    to_pairs = logits[:, target].masked_fill(~rival, least)
    loss = functional.cross_entropy(to_texts, target) + functional.cross_entropy(to_pairs.T, owners)
    return loss / 2, float((to_texts.argmax(1) == target).float().mean())


def _texts_of(pool: Pool, places: Places) -> tuple[Places, Places, np.ndarray]:
    """Return the batch's texts, which of them is each row's, and (B, U) which ones are wrong for it."""
    own = pool.own[places, 0]
    ids, columns = np.unique(own, return_inverse=True)
    return ids, columns, ~pool.excluded(places, np.broadcast_to(ids, (len(places), len(ids))))


def _draw_rows(rows: Places, size: int, *, seed: int, step: int) -> Places:
    """Return so many different rows."""
    order = draw_bits(marks_of(["warm-up"]), len(rows), seed=seed, step=step, use="candidates")[0]
    return rows[np.argpartition(order, size - 1)[:size]]
