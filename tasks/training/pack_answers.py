"""Put prompts and answers into sequences: ``[prompt, answer 1, answer 2, ...]``, so that a prompt is encoded once.

Each answer sees the prompt and itself, not the others, and its positions begin where the prompt's end, so that its
log-probabilities are those of a sequence of its own (ours; two images are 500 to 2,000 tokens, an answer about 40).
Prompts are padded on the left: all answers then stand at the end, and logits are computed there only.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tasks.training.collate import Answer, Batch

PADDING = -1
"""Segment of the padding; 0 is the prompt, answers count from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Be what a model is called with, and where in its logits the answers are."""

    inputs: dict[str, Any]
    """Keyword arguments of the model's ``forward``."""
    rows: Tensor
    """(N,) for each answer token its sequence,"""
    places: Tensor
    """(N,) the place in the kept logits that predicts it,"""
    targets: Tensor
    """(N,) the token,"""
    numbers: Tensor
    """(N,) and the number of its answer, counted through the batch."""
    owners: Tensor
    """(M,) per answer its example,"""
    columns: Tensor
    """(M,) and its column."""
    examples: int
    """B."""
    width: int
    """A, the number of columns."""


def pack_answers(batch: Batch, model: Any, *, width: int) -> Packed:
    """Return the sequences of a batch.

    Args:
        batch: with P prompts, their tensors on the model's device.
        model: the unwrapped model; asked for the positions of image tokens, where it has its own (M-RoPE).
        width: A, the columns of the result.
    """
    device = next(model.parameters()).device
    ids, segments = _lay_out(batch)
    start = max(map(len, batch.prompts))
    types = {name: _widen(given, start, ids.shape[1]).to(device) for name, given in batch.types.items()}
    ids, segments = ids.to(device), segments.to(device)
    positions = _positions(model, batch, ids=ids[:, :start], real=segments[:, :start] == 0, types=types)
    positions = _continue(positions, segments, start)
    inputs = {
        "input_ids": ids,
        "attention_mask": _mask(segments, model),
        "position_ids": positions,
        "logits_to_keep": ids.shape[1] - start + 1,
        "use_cache": False,
        **{name: types[name] for name in types},
        **batch.extras,
    }
    where = _where(batch.answers)
    owners = [owner for owner, own in zip(batch.owners, batch.answers, strict=True) for _ in own]
    columns = [answer.column for own in batch.answers for answer in own]
    return Packed(
        inputs=inputs,
        rows=where[0].to(device),
        places=where[1].to(device),
        targets=where[2].to(device),
        numbers=where[3].to(device),
        owners=torch.tensor(owners, device=device),
        columns=torch.tensor(columns, device=device),
        examples=len(batch.keys),
        width=width,
    )


def _lay_out(batch: Batch) -> tuple[Tensor, Tensor]:
    """Return (P, T) tokens and (P, T) segments."""
    start = max(map(len, batch.prompts))
    length = start + max(sum(len(answer.ids) for answer in own) for own in batch.answers)
    ids = torch.zeros(len(batch.prompts), length, dtype=torch.long)
    segments = torch.full_like(ids, PADDING)
    for row, (prompt, own) in enumerate(zip(batch.prompts, batch.answers, strict=True)):
        ids[row, start - len(prompt) : start] = torch.tensor(prompt)
        segments[row, start - len(prompt) : start] = 0
        place = start
        for number, answer in enumerate(own, 1):
            ids[row, place : place + len(answer.ids)] = torch.tensor(answer.ids)
            segments[row, place : place + len(answer.ids)] = number
            place += len(answer.ids)
    return ids, segments


def _widen(given: Sequence[Sequence[int]], start: int, length: int) -> Tensor:
    wide = torch.zeros(len(given), length, dtype=torch.long)
    for row, values in enumerate(given):
        wide[row, start - len(values) : start] = torch.tensor(values)
    return wide


def _positions(model: Any, batch: Batch, *, ids: Tensor, real: Tensor, types: dict[str, Tensor]) -> Tensor:
    """Return the prompts' positions, (P, L) or (axes, P, L)."""
    find = _own_positions(model)
    if find is None:
        return (real.long().cumsum(-1) - 1).clamp(min=0)
    given = {"input_ids": ids, "attention_mask": real.long(), **batch.extras}
    given |= {name: values[:, : ids.shape[1]] for name, values in types.items()}
    wanted = inspect.signature(find).parameters
    found, _ = find(**{name: value for name, value in given.items() if name in wanted})
    return found


def _own_positions(model: Any) -> Any:
    """Return the model's own way to position image tokens; ``None``: it counts tokens."""
    for module in model.modules():
        if hasattr(module, "get_rope_index"):
            return module.get_rope_index
    return None


def _continue(positions: Tensor, segments: Tensor, start: int) -> Tensor:
    """Return the positions with those of the answers, each beginning where its prompt ends."""
    real = segments[:, :start] == 0
    axes = positions if positions.ndim == 3 else positions[None]
    last = torch.where(real[None], axes, 0).amax(dim=(0, 2))  # (P,)
    own = segments[:, start:]
    same = (own[:, :, None] == own[:, None, :]).long()
    count = torch.tril(same).sum(-1)  # place within the answer, from 1
    behind = (last[:, None] + count).clamp(min=0)
    whole = torch.cat([axes, behind[None].expand(len(axes), -1, -1)], dim=2)
    return whole if positions.ndim == 3 else whole[0]


def _mask(segments: Tensor, model: Any) -> Tensor:
    """Return who sees whom, (P, 1, T, T): bool, or what is added to the scores where attention is eager."""
    length = segments.shape[1]
    before = torch.ones(length, length, dtype=torch.bool, device=segments.device).tril()
    keys, queries = segments[:, None, :], segments[:, :, None]
    seen = before & (keys != PADDING) & ((keys == 0) | (keys == queries))
    seen |= torch.eye(length, dtype=torch.bool, device=segments.device)  # padding sees itself: no row without a key
    if model.config._attn_implementation == "eager":
        dtype = next(model.parameters()).dtype
        return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(~seen, torch.finfo(dtype).min)[
            :, None
        ]
    return seen[:, None]


def _where(answers: Sequence[Sequence[Answer]]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return per answer token its sequence, the kept place that predicts it, the token, and its answer's number.

    The first kept place is the prompt's last token, which predicts the first token of every answer.
    """
    rows: list[int] = []
    places: list[int] = []
    targets: list[int] = []
    numbers: list[int] = []
    number = 0
    for row, own in enumerate(answers):
        begin = 0
        for answer in own:
            size = len(answer.ids)
            rows += [row] * size
            places += [0, *range(begin + 1, begin + size)]
            targets += answer.ids
            numbers += [number] * size
            begin, number = begin + size, number + 1
    return torch.tensor(rows), torch.tensor(places), torch.tensor(targets), torch.tensor(numbers)
