"""Adversary of the trainer: proposes the retriever's negatives as tokens and passes it rewards.

It also saves the retriever, and raises alarms, as texts for the run page and as numbers for charts
(ours):

* Collapse: the entropy of q, as a share of the uniform one, stays below a bound: a pair nearly
  always gets one text.
* Generic negatives: one text is a large part of all proposals, as "more people in parking lot"
  would be (paper 000, Fig. 5c).

Reads ``runs/NAME/retriever/`` (``material``), the frozen rows for CLIP4IDC's images, and a
checkpoint's ``retriever.pt`` (weights, moments, numbers, history; with ``weights_only``). Writes
that file, and at the end ``retriever.safetensors`` and ``retriever.json``: alarms and most common
negatives, for the run's page. Needs PyTorch and safetensors.
"""

import json
import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from pairwright.schemas.encoder_config import ClipConfig
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.images.decode import decode_rgb
from pairwright.tasks.models.weights import loading
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training.collate import AnswerTokens
from pairwright.tasks.training.freeze_rows import FrozenRows, RefusedRowError
from pairwright.tasks.training.losses import TEXTS
from pairwright.tasks.training.ranks import count_ranks
from pairwright.tasks.training.retriever.candidate_pool import NONE
from pairwright.tasks.training.retriever.encoders import (
    Clip4IdcEncoder,
    Encoder,
    Heads,
    HeadsEncoder,
    ReadImages,
)
from pairwright.tasks.training.retriever.material import CLIP, Material, open_material
from pairwright.tasks.training.retriever.retriever import Average, Proposal, Retriever, warm_up

log = logging.getLogger(__name__)
PAGE = "retriever.json"
STATE = "retriever.pt"
NETWORK = "retriever.safetensors"
FORMAT = "pairwright retriever 1"
ABOUT = "about"
Tokenize = Callable[[str], tuple[int, ...]]
"""Returns an answer's tokens, end token included; ``RefusedRowError`` for an unusable text."""
WINDOW = 2048  # negatives in the history
LEAST = 128  # negatives, and ``FEWEST`` batches, needed for an alarm
FEWEST = 20
# a text with this share of proposals is generic, if it is also ``FAIR`` times its uniform share
MOST_COMMON = 0.2
FAIR = 5
TOP = 5


@dataclass(kw_only=True)
class Watch:
    """Statistics and alarms over recent proposals."""

    texts: tuple[str, ...]  # the pool's
    min_entropy: float
    # text and row
    _seen: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _shares: deque[float] = field(default_factory=lambda: deque(maxlen=FEWEST))

    def see(self, proposal: Proposal) -> None:
        """Add a batch's negatives."""
        has_negatives = False
        for row, numbers in zip(proposal.places.tolist(), proposal.ids.tolist(), strict=True):
            for number in numbers:
                if number != NONE:
                    self._seen.append((number, row))
                    has_negatives = True
        if has_negatives:
            self._shares.append(proposal.metrics["retriever/entropy share"])

    def metrics(self) -> dict[str, float]:
        """Return ``retriever/most common share``, of the recent proposals."""
        common = self.common()
        if not common:
            return {}
        return {"retriever/most common share": common[0]["count"] / len(self._seen)}

    def common(self) -> list[dict[str, Any]]:
        """Return the most frequently proposed texts, with their counts and numbers of rows."""
        counts = Counter(number for number, _ in self._seen)
        pairs = Counter(number for number, _ in set(self._seen))
        top = sorted(counts, key=lambda number: (-counts[number], number))[:TOP]
        return [
            {"text": self.texts[number], "count": counts[number], "pairs": pairs[number]}
            for number in top
        ]

    def alarms(self) -> dict[str, str]:
        """Return current alarms by name, with advice; none until there is enough data."""
        if len(self._seen) < LEAST or len(self._shares) < FEWEST:
            return {}
        alarms: dict[str, str] = {}
        common = self.common()[0]
        if max(self._shares) < min(self.min_entropy, 1):
            alarms["collapse"] = (
                f"the retriever's choice has {sum(self._shares) / FEWEST:.1%} of the entropy of a "
                f"uniform one, in each of the last {FEWEST} batches less than adpo.min_entropy "
                f"({self.min_entropy:.0%}): each pair nearly always gets the same text. Raise "
                "adpo.temperature, or lower adpo.retriever_learning_rate"
            )
        share = common["count"] / len(self._seen)
        fair_share = FAIR / max(len(self.texts), 1)
        if share > max(MOST_COMMON, fair_share) and common["pairs"] > 1:
            alarms["generic negatives"] = (
                f"one text is {share:.0%} of the last {len(self._seen)} negatives, for "
                f"{common['pairs']} different pairs: it may be true of many, or say nothing: "
                f"{common['text'][:200]!r}"
            )
        return alarms

    def state_dict(self) -> dict[str, Any]:
        """Return the history."""
        return {"seen": [list(negative) for negative in self._seen], "shares": list(self._shares)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the history."""
        self._seen = deque(maxlen=WINDOW)
        for number, row, *_ in state["seen"]:
            self._seen.append((number, row))
        self._shares = deque(state["shares"], maxlen=FEWEST)


class RetrieverAdversary:
    """Adversary that proposes negatives for batches of rows, and learns which are hard."""

    def __init__(
        self,
        retriever: Retriever,
        watch: Watch,
        places: Mapping[str, int],
        *,
        tokenize: Tokenize,
        most_tokens: int,
    ) -> None:
        """Keep the parts; texts longer than ``most_tokens`` are not proposed."""
        self.retriever = retriever
        self.watch = watch
        self._places = places
        self._tokenize = tokenize
        self._most_tokens = most_tokens
        self._proposed: Proposal | None = None
        self._raised: set[str] = set()

    def propose(self, keys: Sequence[str]) -> list[tuple[AnswerTokens, ...]]:
        """Return m answers per row, in columns from ``TEXTS`` on, or none.

        A new retriever is warmed up first. Unusable texts are left out, without a reward.
        """
        self._warm_up()
        self._proposed = self.retriever.propose([self._places[key] for key in keys])
        return [self._tokenize_texts(texts) for texts in self._proposed.texts]

    def _tokenize_texts(self, texts: Sequence[str]) -> tuple[AnswerTokens, ...]:
        """Return a row's negatives as tokens."""
        answers: list[AnswerTokens] = []
        for column, text in enumerate(texts, TEXTS):
            with suppress(RefusedRowError):
                ids = self._tokenize(text)
                if len(ids) <= self._most_tokens:
                    answers.append(AnswerTokens(column, ids))
        return tuple(answers)

    def _warm_up(self) -> None:
        if not self.retriever.drawn and self.retriever.config.warmup_steps:
            warm_up(self.retriever, self.retriever.config.warmup_steps)

    def learn(self, rewards: Tensor, *, step: bool) -> dict[str, float]:
        """Learn from the rewards of the last proposal, and return metrics.

        With ``step``, step on the mean gradient so far. ``rewards`` are ``(B, m)``, NaN for absent
        negatives; fewer columns where no row has so many.
        """
        proposed = self._proposed
        assert proposed is not None
        self._proposed = None
        self.watch.see(proposed)
        missing = proposed.log_q.shape[1] - rewards.shape[1]
        padded = torch.nn.functional.pad(rewards, (0, missing), value=float("nan"))
        learned = self.retriever.learn(proposed, padded, last=step)
        alarms = self.watch.alarms()
        for name in sorted(alarms.keys() - self._raised):  # once each
            log.warning("retriever, %s: %s", name, alarms[name])
        self._raised = set(alarms)
        return proposed.metrics | self.watch.metrics() | learned

    def skip(self, *, step: bool) -> None:
        """Stay in step with the other ranks where this one has no rows to propose for."""
        self._warm_up()
        self.retriever.drawn += 1
        self._proposed = None
        if step:
            self.retriever.step()

    def save_state(self, folder: Path) -> None:
        """Write the state into a checkpoint."""
        state = {"retriever": self.retriever.state_dict(), "watch": self.watch.state_dict()}
        torch.save(state, folder / STATE)

    def restore_state(self, folder: Path) -> None:
        """Restore the state of a checkpoint."""
        with loading("the retriever", folder / STATE):
            state: Any = torch.load(folder / STATE, map_location="cpu", weights_only=True)
            self.retriever.load_state_dict(state["retriever"])
            self.watch.load_state_dict(state["watch"])

    def save_network(self, folder: Path) -> None:
        """Write the network, and the summary for the run's page."""
        config = self.retriever.config
        description = {
            "format": FORMAT,
            **self.retriever.encoder.about,
            "scale": repr(config.logit_scale),
            "tau": repr(config.temperature),
        }
        weights = self.retriever.encoder.network.state_dict().items()
        tensors = {name: weight.detach().cpu().contiguous().clone() for name, weight in weights}
        # One metadata entry: safetensors writes several in random order, and the file is hashed.
        metadata = {ABOUT: json.dumps(description, sort_keys=True)}
        save_file(tensors, folder / NETWORK, metadata=metadata)
        alarms = self.watch.alarms()
        page: dict[str, Any] = {
            "steps": self.retriever.steps,
            "pool": len(self.retriever.pool.texts),
            "alarms": [{"name": name, "text": text} for name, text in alarms.items()],
            "common": self.watch.common(),
        }
        (folder / PAGE).write_text(json.dumps(page, indent=1))


def open_adversary(
    folder: Path,
    config: TrainConfig,
    *,
    rows: Path,
    dataset: Folder,
    tokenize: Tokenize,
) -> RetrieverAdversary:
    """Create a run's new retriever from ``material.freeze_material``; every process has one."""
    material = open_material(folder)
    clip: tuple[ClipConfig, ReadImages] | None = None
    if (folder / CLIP).exists():
        clip_config = ClipConfig.model_validate_json((folder / CLIP).read_text())
        splits = (config.data.split, config.data.eval_split)
        frozen = [
            FrozenRows(
                folder=dataset,
                file=str(rows),
                split=split,
            )
            for split in splits
        ]
        clip = (clip_config, _make_reader(material, frozen))
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", torch.cuda.current_device())
    average = average_over_ranks if count_ranks() > 1 else None
    return make_adversary(
        material,
        config,
        tokenize=tokenize,
        device=device,
        average=average,
        clip=clip,
    )


def _make_reader(material: Material, frozen: Sequence[FrozenRows]) -> ReadImages:
    """Return a function that reads the images of an entry of the material."""
    positions: dict[str, tuple[FrozenRows, int]] = {}
    for rows in frozen:
        for position, key in enumerate(rows.keys()):
            positions[key] = (rows, position)

    def read_images(entry_index: int) -> Sequence[NDArray[Any]]:
        rows, position = positions[material.entries[entry_index].key]
        return [np.asarray(decode_rgb(image)) for image in rows.read(position).images]

    return read_images


def make_adversary(
    material: Material,
    config: TrainConfig,
    *,
    tokenize: Tokenize,
    device: torch.device,
    average: Average | None = None,
    clip: tuple[ClipConfig, ReadImages] | None = None,
) -> RetrieverAdversary:
    """Create a new retriever; ``clip``: CLIP4IDC's base, and the reader of a row's images."""
    pool = material.pool
    if len(pool.texts) < 2:
        raise ConfigError(
            f"adpo: only {len(pool.texts)} distinct chosen texts to train on: use --objective dpo"
        )
    retriever = Retriever(
        pool=pool,
        encoder=_make_encoder(material, config, device=device, clip=clip),
        config=config.adpo,
        seed=config.seed,
        average=average,
    )
    watch = Watch(texts=pool.texts, min_entropy=config.adpo.min_entropy)
    # Longer ones would seldom fit behind a prompt: those that do not are left out of the batch,
    # whatever their length.
    most_tokens = config.model.max_length // 2
    return RetrieverAdversary(
        retriever, watch, material.places, tokenize=tokenize, most_tokens=most_tokens
    )


def _make_encoder(
    material: Material,
    config: TrainConfig,
    *,
    device: torch.device,
    clip: tuple[ClipConfig, ReadImages] | None,
) -> Encoder:
    if config.adpo.encoder == "clip4idc":
        if clip is None:
            raise ConfigError(
                "adpo.encoder: clip4idc: the dataset's profile names no CLIP (embedding.clip)"
            )
        clip_config, read_images = clip
        return Clip4IdcEncoder(
            clip_config, material.pool.texts, read_images, seed=config.seed, device=device
        )
    features = material.features
    if features is None:
        raise ConfigError(
            "adpo.encoder: heads: no vectors: build the table embeddings, or set "
            "adpo.encoder=clip4idc"
        )
    heads = Heads(*features.vector_lengths, config.adpo.projection_dim, seed=config.seed)
    return HeadsEncoder(heads, features, device)


def average_over_ranks(tensors: Sequence[Tensor]) -> None:
    """Replace tensors by their means over all processes; every process passes the same shapes."""
    for tensor in tensors:
        mean = tensor.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(mean)
        tensor.detach().copy_(mean / count_ranks())
