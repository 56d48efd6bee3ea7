"""Score answers: a model's log-probability of each, from the logits of their tokens alone.

The reference is the model as the run began, in one of three forms: with LoRA the policy with
adapters switched off; else, or with ``model.reference=scores``, a table of all rows' scores,
computed by the Trainer before the first step (some 40 bytes per row) and kept beside the dataset;
for ADPO a frozen copy (2 bytes per parameter in bfloat16, else 4). Where no vision weight is
trained, policy and reference share the features of a batch's images (``sharing_features``), which
saves a pass and its memory.
"""

import io
import json
import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import blake2b
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
from pairwright.schemas.rows import make_key
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
from pairwright.tasks.training.losses import LOSSES, Scored, needs_of
from pairwright.tasks.training.pack_answers import Packed
from pairwright.tasks.training.runs import REFERENCE, RUNS, Run

log = logging.getLogger(__name__)
REFERENCES = "references"  # folder of the dataset
REFERENCE_VERSION = 1  # raise when answers are scored in another way
LIMITS = ("max_train_rows", "max_eval_rows")
COUNTS = {"max_pixels", "max_length", "template_kwargs", "load_in_4bit"}
"""Settings of the model that change its scores, beside ``LIMITS`` of the data."""
CHUNK = 2**23  # logits in float32 at once: 32 MiB; more are slower on a CPU
KEY = "S16"
FIND = "get_image_features"  # method of transformers' models from pixels to image features


def score_answers(model: Any, packed: Packed) -> Scored:
    """Return the summed log-probabilities of answers, (B, A).

    Answers of one column of an example, those of a conversation, add up. The model may be wrapped
    (DDP, FSDP, PEFT).
    """
    logits = model(**packed.inputs).logits
    if logits.ndim == 3:  # the model ignores logits_to_keep: (K, V) expected
        logits = logits[packed.inputs["logits_to_keep"]]
    chosen = target_log_probabilities(logits, packed.places, packed.targets)
    answers = len(packed.owners)
    sums = torch.zeros(answers, device=chosen.device).index_add(0, packed.numbers, chosen)
    cells = (packed.owners, packed.columns)
    logps = torch.zeros((packed.examples, packed.width), device=chosen.device)
    logps = logps.index_put(cells, sums, accumulate=True)
    return Scored(logps=logps, tokens=count_answer_tokens(packed))


def reach_whole(model: Any, loss: Tensor) -> Tensor:
    """Return a loss with a gradient, possibly zero, for each weight that FSDP does not shard.

    All ranks must reduce the same weights, whether their rows have images or not; and a weight
    without a gradient (the norm behind SigLIP's last layer, skipped by LLaVA-OneVision) has no
    optimiser state to reload.
    """
    if not isinstance(model, FSDPModule):
        return loss
    zeros: list[Tensor] = []
    for weight in cast("Any", model).parameters():
        if weight.requires_grad and not isinstance(weight, DTensor):
            zeros.append(weight.flatten()[0] * 0)
    return loss + sum(zeros)


def count_answer_tokens(packed: Packed) -> Tensor:
    """Return (B, A): the number of tokens of each answer, without a device sync."""
    cells = packed.owners[packed.numbers], packed.columns[packed.numbers]
    tokens = torch.zeros(
        packed.examples, packed.width, dtype=torch.long, device=packed.targets.device
    )
    return tokens.index_put_(cells, torch.ones_like(packed.numbers), accumulate=True)


def target_log_probabilities(
    logits: Tensor,
    places: Tensor,
    targets: Tensor,
) -> Tensor:
    """Return the log-probabilities of target tokens, (N,) float32, differentiable once.

    Equals ``logits.log_softmax(-1)[places, targets]``, but keeps only the logits for the backward
    pass and makes float32 copies by chunk: half the memory for bfloat16. Logits are (K, V), places
    and targets (N,); several tokens may share a place.
    """
    return _TargetLogProbabilities.apply(logits, places, targets)  # pyright: ignore[reportReturnType]


class _TargetLogProbabilities(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        places: Tensor,
        targets: Tensor,
    ) -> Tensor:
        chunks = logits.split(_chunk_rows(logits))
        total = torch.cat([chunk.float().logsumexp(-1) for chunk in chunks])
        ctx.save_for_backward(logits, total, places, targets)
        return logits[places, targets].float() - total[places]

    @staticmethod
    @torch.autograd.function.once_differentiable  # which hides the name of ctx
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return grad x (one-hot - softmax), summed over the tokens of a place."""
        logits, total, places, targets = ctx.saved_tensors
        (grad,) = grads
        weights = torch.zeros_like(total).index_add_(0, places, grad)
        gradient = torch.empty_like(logits)
        size = _chunk_rows(logits)
        for begin in range(0, len(logits), size):
            rows = slice(begin, begin + size)
            chunk = (logits[rows] - total[rows, None]).exp_()  # float32, as total is
            chunk.mul_(-weights[rows, None])
            is_in_chunk = (places >= begin) & (places < begin + len(chunk))
            cells = ((places - begin).clamp(0, len(chunk) - 1), targets)
            chunk.index_put_(cells, grad.where(is_in_chunk, 0), accumulate=True)
            gradient[rows] = chunk
        return gradient, None, None


def _chunk_rows(logits: Tensor) -> int:
    return max(1, CHUNK // logits.shape[-1])


# ---- the reference


@dataclass(frozen=True)
class Adapters:
    """Policy with its adapters switched off."""

    def score(
        self,
        policy: Any,
        packed: Packed,
        keys: Sequence[str],
    ) -> Scored:
        """Run the policy, possibly wrapped, once more without adapters and dropout."""
        del keys
        inner = policy
        while not hasattr(inner, "disable_adapter"):  # DDP and its like
            inner = inner.module
        was_training = inner.training
        inner.eval()
        try:
            with torch.no_grad(), inner.disable_adapter():
                return score_answers(policy, packed)
        finally:
            inner.train(was_training)


@dataclass(frozen=True)
class Copy:
    """Second model with the initial weights."""

    model: Any
    dtype: torch.dtype = torch.float32  # compute precision

    def score(
        self,
        policy: Any,
        packed: Packed,
        keys: Sequence[str],
    ) -> Scored:
        """Run the second model."""
        del policy, keys
        with torch.no_grad(), computing(self.model.device, self.dtype):
            return score_answers(self.model, packed)


@dataclass(frozen=True)
class ReferenceScores:
    """Log-probabilities computed before the first step, in a file of the run."""

    path: Path
    shared: Path | None = None  # the file that other runs of the dataset read, too

    @cached_property
    def score_arrays(self) -> dict[str, NDArray[Any]]:
        """Return ``keys``, (R,) of 16 bytes, ascending; ``logps`` and ``tokens``, both (R, A)."""
        try:
            with np.load(self.path) as file:
                return dict(file)
        except (OSError, EOFError, ValueError, BadZipFile) as error:
            raise StoreError(
                f"{self.path}: cannot be read: {error}. Start over with another --name"
            ) from error

    def write_scores(self, rows: Iterable[tuple[str, Sequence[float], Sequence[int]]]) -> None:
        """Write keys, log-probabilities and token numbers of rows, each key once."""
        by_key = {row[0]: row for row in rows}
        keys, logps, tokens = zip(*sorted(by_key.values()), strict=True)
        names = [bytes.fromhex(key) for key in keys]
        file = io.BytesIO()
        np.savez(
            file,
            keys=np.array(names, KEY),
            logps=np.array(logps, "f4"),
            tokens=np.array(tokens, "i4"),
        )
        for path in filter(None, (self.path, self.shared)):
            Folder(str(path.parent)).write(path.name, file.getbuffer())

    def copy_shared(self) -> None:
        """Copy the scores of another run of the same model and rows, if there are any."""
        if self.shared and self.shared.exists() and not self.path.exists():
            Folder(str(self.path.parent)).write(self.path.name, self.shared.read_bytes())
            log.info("the reference's scores are in %s", self.shared)

    def score(
        self,
        policy: Any,
        packed: Packed,
        keys: Sequence[str],
    ) -> Scored:
        """Look up a batch's rows.

        ``TrainingError``: a row is missing, or has a different number of tokens.
        """
        del policy
        tokens = count_answer_tokens(packed)
        batch_keys = np.array([bytes.fromhex(key) for key in keys], KEY)
        stored_keys = self.score_arrays["keys"]
        rows = np.searchsorted(stored_keys, batch_keys).clip(max=len(stored_keys) - 1)
        logps = torch.from_numpy(self.score_arrays["logps"][rows, : packed.width])
        stored_tokens = torch.from_numpy(self.score_arrays["tokens"][rows, : packed.width])
        batch_tokens = tokens.cpu()
        differs = (batch_tokens > 0) & (batch_tokens != stored_tokens)
        wrong = differs.any(1).numpy() | (stored_keys[rows] != batch_keys)
        if wrong.any():
            raise TrainingError(
                f"row {keys[wrong.argmax()]}: not as in {self.path}: start over with another --name"
            )
        logps = logps.to(tokens.device).where(tokens > 0, 0.0)
        return Scored(logps=logps, tokens=tokens)


# Each scores the answers of the rows with these keys, (B, A), without gradients.
Reference = Adapters | Copy | ReferenceScores


def open_reference(
    config: TrainConfig,
    start: Path,
    run: Run,
) -> Reference | None:
    """Return a run's reference.

    ADPO, whose negatives are drawn at each step, cannot have a table.
    """
    if config.objective not in LOSSES:
        return None
    if config.model.tuning == "lora" and config.model.reference != "scores":
        return Adapters()
    if config.objective != "adpo":
        return ReferenceScores(run.folder / REFERENCE, _find_shared(config, run))
    dtype = choose_precision(config)
    model = load_model(start, config.model, dtype=choose_storage(config))
    model = freeze_model(model, dtype)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return Copy(model.to(device), dtype)


def _find_shared(config: TrainConfig, run: Run) -> Path | None:
    """Return the file of scores by start model, rows, and what changes scores in the settings.

    ``None``: the run is not in a dataset, or has no record of its start model.
    """
    if run.folder.parent.name != RUNS:
        return None
    revision = run.data().get("start", {}).get("revision")
    if not revision:
        return None
    needs = replace(needs_of(config), accepted="", held_out=frozenset())
    data = config.data.model_dump(include={"split", "eval_split", *LIMITS})
    model = config.model.model_dump(include=COUNTS)
    is_drawn = any(data[name] for name in LIMITS)
    key = make_key(
        "reference scores",
        REFERENCE_VERSION,
        revision,
        blake2b(run.rows.read_bytes()).hexdigest(),
        json.dumps([data, model, asdict(needs) | {"held_out": ()}], sort_keys=True),
        str(choose_precision(config)),
        str(choose_storage(config)),
        config.seed if is_drawn else 0,
    )
    return run.folder.parent.parent / REFERENCES / f"{key}.npz"


# ---- shared image features


@contextmanager
def sharing_features(*models: Any) -> Generator[None]:
    """Let models called on the same tensors compute image features once.

    Models with trained vision weights, adapters or differential perception are left alone. The
    models are the policy and a copied reference, possibly wrapped.
    """
    cache: list[tuple[Tensor, Any]] = []
    with ExitStack() as cleanup:
        for model in models:
            module = _find_encoder(model)
            if module is not None and not _trains_vision(module):
                setattr(module, FIND, _caching(module, cache))
                cleanup.callback(delattr, module, FIND)
        yield


def _find_encoder(model: Any) -> Any | None:
    """Return the innermost module that encodes images; ``None`` with differential perception."""
    encoder = None
    for module in model.modules():
        if isinstance(module, DifferentialPerception):
            return None
        if hasattr(type(module), FIND) and FIND not in vars(module):
            encoder = module
    return encoder


def _trains_vision(module: Any) -> bool:
    """Return whether a weight outside the language model is trained."""
    decoder = module.get_decoder()
    language: set[int] = set()
    if decoder is not module:
        language = {id(weight) for weight in decoder.parameters()}
    trained = [weight for weight in module.parameters() if weight.requires_grad]
    return any(id(weight) not in language for weight in trained)


def _caching(module: Any, cache: list[tuple[Tensor, Any]]) -> Callable[..., Any]:
    """Return a module's method ``FIND``, called once for the same pixels."""
    find = getattr(module, FIND)

    def find_cached(*args: Any, **kwargs: Any) -> Any:
        pixels = args[0] if args else kwargs["pixel_values"]
        for cached_pixels, features in cache:
            if cached_pixels is pixels:
                return features
        with torch.no_grad():
            features = find(*args, **kwargs)
        cache.append((pixels, features))
        return features

    return find_cached
