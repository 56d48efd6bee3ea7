"""The retriever as the trainer knows it: negatives as tokens behind a prompt, rewards in return, files of its own.

Reads ``runs/NAME/retriever/`` (``material``) and, to go on, a checkpoint's ``retriever.pt``; writes that, and at the
end ``retriever.safetensors`` with ``retriever.json``: the alarms and the most common negatives, for the run's page.
Needs PyTorch.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pairwright.schemas.encoders import ClipConfig
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.training.collate import Answer
from pairwright.tasks.training.examples import RefusedRowError
from pairwright.tasks.training.losses.scored import TEXTS
from pairwright.tasks.training.retriever.alarms import Watch
from pairwright.tasks.training.retriever.clip4idc import Shown, load_clip4idc
from pairwright.tasks.training.retriever.heads import Heads, HeadsEncoder
from pairwright.tasks.training.retriever.material import Material
from pairwright.tasks.training.retriever.retriever import Average, Encoder, Proposal, Retriever
from pairwright.tasks.training.retriever.saved import NETWORK, load_state, save_network, save_state
from pairwright.tasks.training.retriever.warm_up import warm_up

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)
PAGE = "retriever.json"
Tokenize = Callable[[str], tuple[int, ...]]
"""Returns an answer's tokens, its end mark included; ``RefusedRowError`` where a text cannot be one."""


class RetrieverAdversary:
    """Propose negatives for batches of rows, and learn which are hard."""

    def __init__(
        self,
        retriever: Retriever,
        watch: Watch,
        places: Mapping[str, int],
        *,
        tokenize: Tokenize,
        most_tokens: int,
    ) -> None:
        """Take them as they are; texts with more than ``most_tokens`` are no negatives."""
        self.retriever = retriever
        self.watch = watch
        self._places = places
        self._tokenize = tokenize
        self._most_tokens = most_tokens
        self._proposed: Proposal | None = None
        self._told: set[str] = set()

    def propose(self, keys: Sequence[str]) -> list[tuple[Answer, ...]]:
        """Return m answers per row, in columns from ``TEXTS`` on; none where there are no candidates.

        The first time, a retriever that is new is warmed up.
        """
        self._warm_up()
        self._proposed = self.retriever.propose([self._places[key] for key in keys])
        return [tuple(self._answers(own)) for own in self._proposed.texts]

    def _warm_up(self) -> None:
        if not self.retriever.drawn and self.retriever.config.warmup_steps:
            warm_up(self.retriever, self.retriever.config.warmup_steps)

    def _answers(self, texts: Sequence[str]) -> Iterator[Answer]:
        """Yield each text as an answer; one that the model cannot be given is left out, and gets no reward."""
        for column, text in enumerate(texts):
            try:
                ids = self._tokenize(text)
            except RefusedRowError:
                continue
            if len(ids) <= self._most_tokens:
                yield Answer(TEXTS + column, ids)

    def learn(self, rewards: "Tensor", *, step: bool) -> dict[str, float]:
        """Learn from the rewards of what was proposed last, and step where the policy does.

        Args:
            rewards: ``(B, m)``, NaN where a row got no negative; fewer columns where none got so many.
            step: whether the optimiser steps, on the mean since the last time.
        """
        proposed = self._proposed
        if proposed is None:
            raise ValueError("nothing was proposed since the last time")
        self._proposed = None
        seen = self.watch.see(proposed)
        missing = proposed.log_q.shape[1] - rewards.shape[1]
        padded = torch.nn.functional.pad(rewards, (0, missing), value=float("nan"))
        learned = self.retriever.learn(proposed, padded, last=step)
        self._tell()
        return proposed.metrics | seen | learned

    def skip(self, *, step: bool) -> None:
        """Stand in for ``propose`` and ``learn`` where a rank has no rows, so that all ranks do the same together."""
        self._warm_up()
        self.retriever.drawn += 1
        self._proposed = None
        if step:
            self.retriever.step()

    def _tell(self) -> None:
        """Log each alarm when it begins."""
        now = {alarm.name: alarm.text for alarm in self.watch.alarms()}
        for name in sorted(now.keys() - self._told):
            log.warning("retriever, %s: %s", name, now[name])
        self._told = set(now)

    def save(self, folder: Path) -> None:
        """Write the state beside a checkpoint's files."""
        save_state(folder, {"retriever": self.retriever.state_dict(), "watch": self.watch.state_dict()})

    def load(self, folder: Path) -> None:
        """Go on from a checkpoint.

        Raises:
            TrainingError: it has no state of a retriever, or that of another one.
        """
        state = load_state(folder)
        self.retriever.load_state_dict(state["retriever"])
        self.watch.load_state_dict(state["watch"])

    def publish(self, folder: Path) -> None:
        """Write the file that mines negatives, and what the run's page says of the retriever."""
        config = self.retriever.config
        about = self.retriever.encoder.about | {"scale": repr(config.logit_scale), "tau": repr(config.temperature)}
        save_network(folder / NETWORK, self.retriever.encoder.network.state_dict(), about)
        page: dict[str, Any] = {
            "steps": self.retriever.steps,
            "pool": len(self.retriever.pool.texts),
            "metrics": self.watch.metrics(),
            "alarms": [asdict(alarm) for alarm in self.watch.alarms()],
            "common": [asdict(text) for text in self.watch.common()],
        }
        (folder / PAGE).write_text(json.dumps(page, indent=1))


def make_adversary(
    material: Material,
    config: TrainConfig,
    *,
    tokenize: Tokenize,
    device: torch.device,
    average: Average | None = None,
    clip: tuple[ClipConfig, Shown] | None = None,
) -> RetrieverAdversary:
    """Make a new retriever for a run.

    Args:
        material: what it knows of the rows.
        config: the run's settings.
        tokenize: what turns a text into an answer's tokens.
        device: where it computes.
        average: replaces tensors by their means over all ranks.
        clip: for the encoder CLIP4IDC, the weights it starts from, and what gives the images of a row.

    Raises:
        ConfigError: the pool has no two texts, or the encoder lacks what it needs.
        ModelError: CLIP's weights are missing.
    """
    if len(material.pool.texts) < 2:
        raise ConfigError(
            f"adpo: the training split has {len(material.pool.texts)} distinct chosen texts; there is nothing to "
            "choose negatives from. Train with --objective dpo"
        )
    retriever = Retriever(
        pool=material.pool,
        encoder=_make_encoder(material, config, device, clip),
        config=config.adpo,
        seed=config.seed,
        average=average,
    )
    watch = Watch(texts=material.pool.texts, min_entropy=config.adpo.min_entropy, truth=material.truth)
    # Longer ones would seldom fit behind a prompt: those that do not are left out of the batch, whatever their length.
    return RetrieverAdversary(
        retriever, watch, material.places, tokenize=tokenize, most_tokens=config.model.max_length // 2
    )


def _make_encoder(
    material: Material, config: TrainConfig, device: torch.device, clip: tuple[ClipConfig, Shown] | None
) -> Encoder:
    seed = config.seed
    if config.adpo.encoder == "clip4idc":
        if clip is None:
            raise ConfigError("adpo.encoder: clip4idc: the dataset's profile names no CLIP (embedding.clip)")
        return load_clip4idc(clip[0], material.pool.texts, clip[1], seed=seed, device=device)
    if material.features is None:
        raise ConfigError(
            "adpo.encoder: heads: the dataset has no vectors of its images or texts; build it with the table "
            "embeddings, or set adpo.encoder=clip4idc"
        )
    return HeadsEncoder(
        Heads(*material.features.sizes, config.adpo.projection_dim, seed=seed), material.features, device
    )
