"""Score answers: a model's log-probability of each, from the logits of their tokens alone.

The reference is the model as the run began, in one of three forms: with LoRA the policy with
adapters switched off; else a table of all rows' scores, computed by the Trainer before the first
step (some 40 bytes per row); for ADPO a frozen copy (2 bytes per parameter in bfloat16, else 4).
Where no vision weight is trained, policy and reference share the features of a batch's images
(``sharing_features``), which saves a pass and its memory.
"""

import io
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from pairwright.schemas.errors import StoreError, TrainingError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.models.differential import DifferentialPerception
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training.load_model import (
    choose_precision,
    choose_storage,
    computing,
    freeze_model,
    load_model,
)
from pairwright.tasks.training.losses import LOSSES, Scored
from pairwright.tasks.training.pack_answers import Packed
from pairwright.tasks.training.runs import REFERENCE

CHUNK = 2**23  # logits in float32 at once: 32 MiB; more are slower on a CPU
KEY = "S16"
FIND = "get_image_features"  # method of transformers' models from pixels to image features


def score_answers(model: Any, packed: Packed) -> Scored:
    """Return the summed log-probabilities of answers, (B, A); the model may be wrapped (DDP, FSDP, PEFT)."""
    logits, keep = model(**packed.inputs).logits, packed.inputs["logits_to_keep"]
    if logits.ndim == 3:  # the model ignores logits_to_keep: (K, V) expected
        logits = logits[keep]
    chosen = target_log_probabilities(logits, packed.places, packed.targets)
    answers = len(packed.owners)
    sums = torch.zeros(answers, device=chosen.device).index_add(0, packed.numbers, chosen)
    place = (packed.owners, packed.columns)
    logps = torch.zeros((packed.examples, packed.width), device=chosen.device).index_put(
        place, sums
    )
    return Scored(logps=logps, tokens=count_tokens(packed))


def reach_whole(model: Any, loss: Tensor) -> Tensor:
    """Return a loss with a gradient, possibly zero, for each weight that FSDP does not shard.

    All ranks must reduce the same weights, whether their rows have images or not; and a weight
    without a gradient (the norm behind SigLIP's last layer, skipped by LLaVA-OneVision) has no
    optimiser state to reload.
    """
    if not isinstance(model, FSDPModule):
        return loss
    whole = [
        one
        for one in cast("Any", model).parameters()
        if one.requires_grad and not isinstance(one, DTensor)
    ]
    return loss + sum(one.flatten()[0] * 0 for one in whole)


def count_tokens(packed: Packed) -> Tensor:
    """Return (B, A): the number of tokens of each answer, without a device sync."""
    place = packed.owners[packed.numbers], packed.columns[packed.numbers]
    tokens = torch.zeros(
        packed.examples, packed.width, dtype=torch.long, device=packed.targets.device
    )
    return tokens.index_put_(place, torch.ones_like(packed.numbers), accumulate=True)


def target_log_probabilities(logits: Tensor, places: Tensor, targets: Tensor) -> Tensor:
    """Return the log-probabilities of target tokens, (N,) float32, differentiable once.

    Equals ``logits.log_softmax(-1)[places, targets]``, but keeps only the logits for the backward
    pass and makes float32 copies by chunk: half the memory for bfloat16. Logits are (K, V), places
    and targets (N,); several tokens may share a place.
    """
    return _TargetLogProbabilities.apply(logits, places, targets)  # pyright: ignore[reportReturnType]


class _TargetLogProbabilities(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, places: Tensor, targets: Tensor) -> Tensor:
        total = torch.cat(
            [part.float().logsumexp(-1) for part in logits.split(_chunk_rows(logits))]
        )
        ctx.save_for_backward(logits, total, places, targets)
        return logits[places, targets].float() - total[places]

    @staticmethod
    @torch.autograd.function.once_differentiable  # which hides the name of ctx
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return grad x (one-hot - softmax), summed over the tokens of a place."""
        logits, total, places, targets = ctx.saved_tensors
        (grad,) = grads
        weights = torch.zeros_like(total).index_add_(0, places, grad)
        found, size = torch.empty_like(logits), _chunk_rows(logits)
        for begin in range(0, len(logits), size):
            part = (
                logits[begin : begin + size] - total[begin : begin + size, None]
            ).exp_()  # float32, as total is
            part.mul_(-weights[begin : begin + size, None])
            own = (places >= begin) & (places < begin + len(part))
            where = ((places - begin).clamp(0, len(part) - 1), targets)
            found[begin : begin + size] = part.index_put_(
                where, grad.where(own, 0), accumulate=True
            )
        return found, None, None


def _chunk_rows(logits: Tensor) -> int:
    return max(1, CHUNK // logits.shape[-1])


# ---- the reference


@dataclass(frozen=True)
class Adapters:
    """Policy with its adapters switched off."""

    def score(self, policy: Any, packed: Packed, keys: Sequence[str]) -> Scored:
        """Run the policy, possibly wrapped, once more without adapters."""
        del keys
        inner = policy
        while not hasattr(inner, "disable_adapter"):  # DDP and its like
            inner = inner.module
        with torch.no_grad(), inner.disable_adapter():
            return score_answers(policy, packed)


@dataclass(frozen=True)
class Copy:
    """Second model with the initial weights."""

    model: Any
    dtype: torch.dtype = torch.float32  # compute precision

    def score(self, policy: Any, packed: Packed, keys: Sequence[str]) -> Scored:
        """Run the second model."""
        del policy, keys
        with torch.no_grad(), computing(self.model.device, self.dtype):
            return score_answers(self.model, packed)


@dataclass(frozen=True)
class ReferenceScores:
    """Log-probabilities computed before the first step, in a file of the run."""

    path: Path

    @cached_property
    def scores(self) -> dict[str, NDArray[Any]]:
        """Return ``keys``, (R,) of 16 bytes, ascending, and per column the ``logps`` and ``tokens``, (R, A)."""
        try:
            with np.load(self.path) as file:
                return dict(file)
        except (OSError, EOFError, ValueError, BadZipFile) as error:
            raise StoreError(
                f"{self.path}: cannot be read: {error}. Start over with another --name"
            ) from error

    def write(self, rows: Iterable[tuple[str, Sequence[float], Sequence[int]]]) -> None:
        """Write keys, log-probabilities and token numbers of rows, each key once."""
        keys, logps, tokens = zip(*sorted({row[0]: row for row in rows}.values()), strict=True)
        names, file = [bytes.fromhex(key) for key in keys], io.BytesIO()
        np.savez(
            file,
            keys=np.array(names, KEY),
            logps=np.array(logps, "f4"),
            tokens=np.array(tokens, "i4"),
        )
        Folder(str(self.path.parent)).write(self.path.name, file.getbuffer())

    def score(self, policy: Any, packed: Packed, keys: Sequence[str]) -> Scored:
        """Look up a batch's rows; ``TrainingError`` for a missing row or a different number of tokens."""
        del policy
        tokens, wanted = count_tokens(packed), np.array([bytes.fromhex(key) for key in keys], KEY)
        places = np.searchsorted(self.scores["keys"], wanted).clip(max=len(self.scores["keys"]) - 1)
        logps, known = (
            torch.from_numpy(self.scores[name][places, : packed.width])
            for name in ("logps", "tokens")
        )
        asked = tokens.cpu()
        wrong = ((asked > 0) & (asked != known)).any(1).numpy() | (
            self.scores["keys"][places] != wanted
        )
        if wrong.any():
            raise TrainingError(
                f"row {keys[wrong.argmax()]}: not as in {self.path}: start over with another --name"
            )
        return Scored(logps=logps.to(tokens.device).where(tokens > 0, 0.0), tokens=tokens)


Reference = (
    Adapters | Copy | ReferenceScores
)  # each scores the answers of the rows with these keys, (B, A), without gradients


def open_reference(config: TrainConfig, start: Path, run: Path) -> Reference | None:
    """Return a run's reference; ADPO, whose negatives are drawn at each step, cannot have a table."""
    if config.objective not in LOSSES:
        return None
    if config.model.tuning == "lora":
        return Adapters()
    if config.objective != "adpo":
        return ReferenceScores(run / REFERENCE)
    dtype = choose_precision(config)
    model = freeze_model(load_model(start, config.model, dtype=choose_storage(config)), dtype)
    return Copy(model.to("cuda" if torch.cuda.is_available() else "cpu"), dtype)


# ---- shared image features


@contextmanager
def sharing_features(*models: Any) -> Generator[None]:
    """Let models called on the same tensors compute image features once.

    Models with trained vision weights, adapters or differential perception are left alone. The
    models are the policy and a copied reference, possibly wrapped.
    """
    seen: list[tuple[Tensor, Any]] = []
    with ExitStack() as after:
        for model in models:
            # The innermost module with the method is used.
            found = [
                module
                for module in model.modules()
                if hasattr(type(module), FIND) and FIND not in vars(module)
            ]
            if not found or any(isinstance(one, DifferentialPerception) for one in model.modules()):
                continue
            decoder = found[-1].get_decoder()
            language = (
                {id(weight) for weight in decoder.parameters()}
                if decoder is not found[-1]
                else set[int]()
            )
            if all(
                id(weight) in language for weight in found[-1].parameters() if weight.requires_grad
            ):
                setattr(found[-1], FIND, _caching(found[-1], seen))
                after.callback(delattr, found[-1], FIND)
        yield


def _caching(eye: Any, seen: list[tuple[Tensor, Any]]) -> Callable[..., Any]:
    find = getattr(eye, FIND)

    def look(*words: Any, **named: Any) -> Any:
        pixels = words[0] if words else named["pixel_values"]
        for known, features in seen:
            if known is pixels:
                return features
        with torch.no_grad():
            features = find(*words, **named)
        seen.append((pixels, features))
        return features

    return look
