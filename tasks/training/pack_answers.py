"""Pack prompts and answers into sequences: ``[prompt, answer 1, answer 2, ...]``, so that a prompt is encoded once.

Each answer sees the prompt and itself, with positions from the prompt's end on, and so has the
log-probabilities of a sequence of its own (ours). An answer's last token predicts nothing and is
left out; padding follows prompts and answers, where no token sees it.
"""

import inspect
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pairwright.tasks.training.attention import SPLIT
from pairwright.tasks.training.collate import Batch
from pairwright.tasks.training.losses import TEXTS

PACKED = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "llava_onevision", "idefics3", "smolvlm")
PADDING = -1  # segment number of padding; the prompt is 0, answers count from 1
ALIGNED = (
    8  # multiple of sequence lengths on a GPU; otherwise PyTorch copies the mask in each layer
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Inputs of a model, and where its logits predict answers."""

    inputs: dict[
        str, Any
    ]  # keyword arguments of ``forward``; ``logits_to_keep``, (P, T) bool, selects K positions
    places: Tensor  # (N,) per answer token: which of the K positions predicts it
    targets: Tensor  # (N,) per answer token: its id
    numbers: Tensor  # (N,) per answer token: the number of its answer in the batch
    owners: Tensor  # (M,) per answer: its example
    columns: Tensor  # (M,) per answer: its column
    examples: int  # B
    width: int  # A, the number of columns


class PackedLayout(NamedTuple):
    """Sequences of P prompts, on the CPU."""

    ids: Tensor  # (P, T) tokens
    segments: Tensor  # (P, T) ``PADDING``, 0 for the prompt, or the number of the answer
    steps: Tensor  # (P, T) position within an answer, from 1; 0 elsewhere
    keep: Tensor  # (P, T) bool: which tokens predict an answer token


def pack_answers(
    batch: Batch, model: Any, *, width: int = 0, dtype: torch.dtype | None = None
) -> Packed:
    """Return the sequences of a batch of P prompts, on the device of the unwrapped model.

    ``width``: A, the columns of the result; 0: as many as the answers need. ``dtype``: of
    attention, for the mask: autocast's where it is on; by default the weights'.
    """
    weight = next(model.parameters())
    device = weight.device
    packed = any(len(own) > 1 for own in batch.answers)
    in_parts = packed and model.config.get_text_config()._attn_implementation == SPLIT
    start = max(map(len, batch.prompts)) if in_parts else 0
    layout = lay_out(batch, start=start, multiple=ALIGNED if device.type == "cuda" else 1)
    base = next(module for module in model.modules() if isinstance(module, PreTrainedModel))
    known = inspect.signature(base.forward).parameters
    length = layout.ids.shape[1]
    types = {
        name: torch.tensor([[*values, *[0] * (length - len(values))] for values in given])
        for name, given in batch.types.items()
        if name in known
    }
    inputs = {"input_ids": layout.ids, "logits_to_keep": layout.keep, **types, **batch.extras}
    positions = _positions(model, batch, layout, types)
    if packed or positions.ndim == 3:
        inputs["position_ids"] = positions
    if not packed and not can_pack(model):  # else attention is causal and padding unseen
        inputs["attention_mask"] = (layout.segments != PADDING).long()
    moved: dict[str, Any] = {
        name: given.to(device, non_blocking=True) for name, given in inputs.items()
    }
    if packed and length > start:  # else all answers are of one token, predicted by the prompt
        moved["attention_mask"] = _mask(
            layout.segments.to(device), start=start, dtype=dtype or weight.dtype
        )
    return Packed(
        inputs={**moved, "use_cache": False},
        **{
            name: found.to(device, non_blocking=True)
            for name, found in _index_answers(batch).items()
        },
        examples=len(batch.keys),
        width=width or max(TEXTS, *(answer.column + 1 for own in batch.answers for answer in own)),
    )


def can_pack(model: Any) -> bool:
    """Return whether a model scores answers with a shared prompt as it scores them separately (a test compares)."""
    return model.config.model_type in PACKED and not getattr(
        model.config.get_text_config(), "sliding_window", None
    )


def lay_out(batch: Batch, *, start: int = 0, multiple: int = 1) -> PackedLayout:
    """Lay out the tokens; answers start at ``start`` (0: at each prompt's end), T is a multiple of ``multiple``."""
    rows: list[tuple[list[Any], ...]] = []
    for prompt, own in zip(batch.prompts, batch.answers, strict=True):
        size, gap = len(prompt), max(0, start - len(prompt))
        ids, segments, steps = (
            [*prompt, *[0] * gap],
            [0] * size + [PADDING] * gap,
            [0] * (size + gap),
        )
        keep = [False] * (size - 1) + [bool(own)] + [False] * gap
        for number, answer in enumerate(own, 1):
            seen = len(answer.ids) - 1
            ids += answer.ids[:-1]
            segments += [number] * seen
            steps += range(1, seen + 1)
            keep += [place not in answer.silent for place in range(1, seen + 1)]
        rows.append((ids, segments, steps, keep))
    length = -(-max(len(row[0]) for row in rows) // multiple) * multiple
    columns = zip(zip(*rows, strict=True), (0, PADDING, 0, False), strict=True)
    return PackedLayout(
        *(
            torch.tensor([given + [filler] * (length - len(given)) for given in column])
            for column, filler in columns
        )
    )


def _index_answers(batch: Batch) -> dict[str, Tensor]:
    """Return per answer token the kept position that predicts it, the token and its answer; per answer, its owner.

    A row's first kept position is the prompt's last token, which predicts the first token of every
    answer.
    """
    places, first = list[int](), 0
    for own in filter(None, batch.answers):
        behind = first + 1
        for answer in own:
            places += [first, *range(behind, behind + len(answer.targets) - 1)]
            behind += len(answer.targets) - 1
        first = behind
    answers = [
        (owner, answer)
        for owner, own in zip(batch.owners, batch.answers, strict=True)
        for answer in own
    ]
    found = {
        "places": places,
        "targets": [token for _, answer in answers for token in answer.targets],
        "numbers": [number for number, (_, answer) in enumerate(answers) for _ in answer.targets],
        "owners": [owner for owner, _ in answers],
        "columns": [answer.column for _, answer in answers],
    }
    return {name: torch.tensor(values, dtype=torch.long) for name, values in found.items()}


def _positions(model: Any, batch: Batch, layout: PackedLayout, types: dict[str, Tensor]) -> Tensor:
    """Return the positions, (P, T) or (axes, P, T): the prompts', then each answer's, from its prompt's end."""
    real = layout.segments == 0
    # The model's own rule for image tokens; None: positions count tokens.
    find = next(
        (module.get_rope_index for module in model.modules() if hasattr(module, "get_rope_index")),
        None,
    )
    if find is None:
        found = ((real.long().cumsum(-1) - 1) * real)[None]
    else:
        size = int(real.sum(-1).max())
        given = {"input_ids": layout.ids, "attention_mask": real.long(), **types}
        given = {name: values[:, :size] for name, values in given.items()}
        wanted = inspect.signature(find).parameters
        given |= {name: tensor.cpu() for name, tensor in batch.extras.items() if name in wanted}
        found, _ = find(**{name: value for name, value in given.items() if name in wanted})
        found = torch.nn.functional.pad(found, (0, layout.ids.shape[1] - size))
    last = torch.where(real, found, 0).amax(dim=(0, 2))  # (P,)
    whole = torch.where(real, found, last[:, None] + layout.steps)
    return whole if find else whole[0]


def _mask(segments: Tensor, *, start: int, dtype: torch.dtype) -> Tensor:
    """Return the additive mask of the tokens from ``start`` on, (P, 1, T - start, T).

    Not bool: PyTorch would convert it in each layer, and keep the result for the backward pass.
    """
    length = segments.shape[1]
    before = torch.ones(length, length, dtype=torch.bool, device=segments.device).tril()[start:]
    queries, keys = segments[:, start:, None], segments[:, None, :]
    seen = before & ((keys == 0) | ((keys == queries) & (keys != PADDING)))
    nothing = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
    return nothing.masked_fill_(~seen, torch.finfo(dtype).min)[:, None]
