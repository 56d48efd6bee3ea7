"""Pack a prompt with its answers, ``[prompt, answer 1, answer 2, ...]``, to encode it once.

Each answer sees the prompt and itself, with positions from the prompt's end on, and so has the
log-probabilities of a sequence of its own (ours). An answer's last token predicts nothing and is
left out; padding follows prompts and answers, where no token sees it.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pairwright.tasks.training.attention import SPLIT
from pairwright.tasks.training.collate import AnswerTokens, Batch
from pairwright.tasks.training.losses import TEXTS

PACKED = (
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_vl",
    "llava",
    "llava_onevision",
    "internvl",
    "idefics3",
    "smolvlm",
)
UNPACKED = {
    "gemma3": "each layer sees a window of the last tokens, and image tokens see each other",
    "qwen3_5": "the state of its linear attention runs through all tokens",
    "qwen3_5_moe": "the state of its linear attention runs through all tokens",
}
"""Why a prompt cannot be shared in other families; the rest was not compared."""
PADDING = -1  # segment number of padding; the prompt is 0, answers count from 1
# Multiple of sequence lengths on a GPU; otherwise PyTorch copies the mask in each layer.
ALIGNED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Inputs of a model, and where its logits predict answers."""

    # keyword arguments of ``forward``; ``logits_to_keep``, (P, T) bool, selects K positions
    inputs: dict[str, Any]
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


class _Sequence(NamedTuple):
    """Row of a ``PackedLayout``, without padding at its end."""

    ids: list[int]
    segments: list[int]
    steps: list[int]
    keep: list[bool]


def pack_answers(
    batch: Batch,
    model: Any,
    *,
    width: int = 0,
    dtype: torch.dtype | None = None,
) -> Packed:
    """Return the sequences of a batch of P prompts, on the device of the unwrapped model.

    ``width``: A, the columns of the result; 0: as many as the answers need. ``dtype``: of
    attention, for the mask: autocast's where it is on; by default the weights'.
    """
    weight = next(model.parameters())
    device = weight.device
    is_packed = any(len(answers) > 1 for answers in batch.answers)
    start = 0
    if is_packed and model.config.get_text_config()._attn_implementation == SPLIT:
        start = max(map(len, batch.prompts))
    layout = lay_out(batch, start=start, multiple=ALIGNED if device.type == "cuda" else 1)
    cpu_inputs = _make_inputs(batch, model, layout, is_packed=is_packed)
    inputs: dict[str, Any] = _move(cpu_inputs, device)
    # Without tokens from ``start`` on, all answers are of one token, predicted by the prompt.
    if is_packed and layout.ids.shape[1] > start:
        segments = layout.segments.to(device)
        inputs["attention_mask"] = _mask(segments, start=start, dtype=dtype or weight.dtype)
    inputs["use_cache"] = False
    return Packed(
        inputs=inputs,
        **_move(_index_answers(batch), device),
        examples=len(batch.keys),
        width=width or _count_columns(batch),
    )


def _make_inputs(
    batch: Batch, model: Any, layout: PackedLayout, *, is_packed: bool
) -> dict[str, Tensor]:
    """Return the arguments of ``forward``, on the CPU, without the mask of packed answers."""
    types = _pad_types(batch, model, layout.ids.shape[1])
    inputs = {
        "input_ids": layout.ids,
        "logits_to_keep": layout.keep,
        **types,
        **batch.extras,
    }
    positions = _find_positions(model, batch, layout, types)
    if is_packed or positions.ndim == 3:
        inputs["position_ids"] = positions
    if not is_packed and not can_pack(model):  # else attention is causal and padding unseen
        inputs["attention_mask"] = (layout.segments != PADDING).long()
    return inputs


def can_pack(model: Any) -> bool:
    """Return whether a model scores answers with a shared prompt as separately (tests compare)."""
    return not explain_unpacked(model)


def explain_unpacked(model: Any) -> str:
    """Return why a model's answers cannot share a prompt; empty: they can."""
    kind = model.config.model_type
    if getattr(model.config.get_text_config(), "sliding_window", None) and kind not in UNPACKED:
        return "its layers see a window of the last tokens"
    if kind in PACKED:
        return ""
    return UNPACKED.get(kind, "no test compares them with separate sequences")


def lay_out(
    batch: Batch,
    *,
    start: int = 0,
    multiple: int = 1,
) -> PackedLayout:
    """Lay out the tokens.

    Answers start at ``start`` (0: at each prompt's end); T is a multiple of ``multiple``.
    """
    prompts = zip(batch.prompts, batch.answers, strict=True)
    rows = [_lay_out_prompt(prompt, answers, start) for prompt, answers in prompts]
    longest = max(len(row.ids) for row in rows)
    length = -(-longest // multiple) * multiple
    return PackedLayout(
        ids=_pad([row.ids for row in rows], length),
        segments=_pad([row.segments for row in rows], length, filler=PADDING),
        steps=_pad([row.steps for row in rows], length),
        keep=_pad([row.keep for row in rows], length, filler=False),
    )


def _lay_out_prompt(
    prompt: Sequence[int], answers: Sequence[AnswerTokens], start: int
) -> _Sequence:
    """Return a prompt's sequence, its answers from ``start`` on."""
    size = len(prompt)
    gap = max(0, start - size)
    ids = [*prompt, *[0] * gap]
    segments = [0] * size + [PADDING] * gap
    steps = [0] * (size + gap)
    keep = [False] * (size - 1) + [bool(answers)] + [False] * gap
    for number, answer in enumerate(answers, 1):
        answer_ids = answer.ids[:-1]
        answer_steps = range(1, len(answer_ids) + 1)
        ids += answer_ids
        segments += [number] * len(answer_ids)
        steps += answer_steps
        keep += [step not in answer.silent for step in answer_steps]
    return _Sequence(ids, segments, steps, keep)


def _pad(
    rows: Sequence[Sequence[int]],
    length: int,
    *,
    filler: int = 0,
) -> Tensor:
    """Return (P, T) values, ``filler`` behind each row."""
    padded: list[list[int]] = []
    for row in rows:
        padding = [filler] * (length - len(row))
        padded.append([*row, *padding])
    return torch.tensor(padded)


def _pad_types(
    batch: Batch,
    model: Any,
    length: int,
) -> dict[str, Tensor]:
    """Return (P, T) per-token outputs of the processor that the model accepts; answers are 0."""
    base = next(module for module in model.modules() if isinstance(module, PreTrainedModel))
    parameters = inspect.signature(base.forward).parameters
    return {name: _pad(rows, length) for name, rows in batch.types.items() if name in parameters}


def _move(tensors: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    return {name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()}


def _count_columns(batch: Batch) -> int:
    columns = [answer.column for answer in chain.from_iterable(batch.answers)]
    return max(TEXTS, max(columns, default=0) + 1)


def _index_answers(batch: Batch) -> dict[str, Tensor]:
    """Return the fields of ``Packed`` that describe the answers and their tokens.

    A row's first kept position is the prompt's last token, which predicts the first token of every
    answer.
    """
    index: dict[str, list[int]] = {
        "places": [],
        "targets": [],
        "numbers": [],
        "owners": [],
        "columns": [],
    }
    prompt_end = 0
    for owner, answers in zip(batch.owners, batch.answers, strict=True):
        if not answers:
            continue
        position = prompt_end + 1
        for answer in answers:
            targets = answer.loss_tokens
            number = len(index["owners"])
            next_position = position + len(targets) - 1
            index["places"] += [prompt_end, *range(position, next_position)]
            index["targets"] += targets
            index["numbers"] += [number] * len(targets)
            index["owners"].append(owner)
            index["columns"].append(answer.column)
            position = next_position
        prompt_end = position
    return {name: torch.tensor(values, dtype=torch.long) for name, values in index.items()}


def _find_positions(
    model: Any,
    batch: Batch,
    layout: PackedLayout,
    types: dict[str, Tensor],
) -> Tensor:
    """Return the positions, (P, T) or (axes, P, T): each answer's continue its prompt's."""
    is_prompt = layout.segments == 0
    # The model's own rule for image tokens; None: positions count tokens.
    rule = next(
        (module.get_rope_index for module in model.modules() if hasattr(module, "get_rope_index")),
        None,
    )
    if rule is None:
        counts = is_prompt.long().cumsum(-1)
        prompts = ((counts - 1) * is_prompt)[None]
    else:
        prompts = _find_prompt_positions(rule, batch, layout, types)
    last = torch.where(is_prompt, prompts, 0).amax(dim=(0, 2))  # (P,)
    positions = torch.where(is_prompt, prompts, last[:, None] + layout.steps)
    return positions[0] if rule is None else positions


def _find_prompt_positions(
    rule: Callable[..., Any],
    batch: Batch,
    layout: PackedLayout,
    types: dict[str, Tensor],
) -> Tensor:
    """Return the prompts' positions by a model's rule, (axes, P, T)."""
    is_prompt = layout.segments == 0
    size = int(is_prompt.sum(-1).max())
    inputs = {"input_ids": layout.ids, "attention_mask": is_prompt.long(), **types}
    inputs = {name: values[:, :size] for name, values in inputs.items()}
    parameters = inspect.signature(rule).parameters
    for name, tensor in batch.extras.items():
        if name in parameters:
            inputs[name] = tensor.cpu()
    kwargs = {name: tensor for name, tensor in inputs.items() if name in parameters}
    positions, _ = rule(**kwargs)
    padding = layout.ids.shape[1] - size
    return torch.nn.functional.pad(positions, (0, padding))


def _mask(
    segments: Tensor,
    *,
    start: int,
    dtype: torch.dtype,
) -> Tensor:
    """Return the additive mask of the tokens from ``start`` on, (P, 1, T - start, T).

    Not bool: PyTorch would convert it in each layer, and keep the result for the backward pass.
    """
    length = segments.shape[1]
    ones = torch.ones(length, length, dtype=torch.bool, device=segments.device)
    before = ones.tril()[start:]
    queries = segments[:, start:, None]
    keys = segments[:, None, :]
    is_same_answer = (keys == queries) & (keys != PADDING)
    seen = before & ((keys == 0) | is_same_answer)
    mask = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
    mask.masked_fill_(~seen, torch.finfo(dtype).min)
    return mask[:, None]
