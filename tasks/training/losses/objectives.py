"""Which objective needs what of a row, is set where, and is computed by which function."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from pairwright.schemas.training import Objective, TrainConfig
from pairwright.tasks.training.examples import Needs
from pairwright.tasks.training.losses.adavip import adavip
from pairwright.tasks.training.losses.adpo import adpo
from pairwright.tasks.training.losses.dpo import dpo
from pairwright.tasks.training.losses.mdpo import mdpo
from pairwright.tasks.training.losses.scored import Loss, Scored
from pairwright.tasks.training.losses.sft import sft

Need = Literal["nothing", "text", "image", "either"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Say of an objective what it takes."""

    loss: Callable[[Scored, Scored | None, Any], Loss]
    """``loss(policy, reference, section of the settings)``."""
    section: str
    """The field of ``TrainConfig`` that holds its settings."""
    needs_reference: bool
    """Whether the policy is compared with a reference."""
    uses_texts: bool
    """Whether a row's own rejected texts are scored."""
    uses_images: bool
    """Whether the chosen text is scored given the row's rejected images."""
    needs: Need
    """The rejected side without which a row cannot be trained on."""
    joins: bool = False
    """Whether the rejected images are shown beside a rejected text, too; otherwise only where there is none."""

    def compute(self, policy: Scored, reference: Scored | None, config: TrainConfig) -> Loss:
        """Return the loss, with the settings of its own section."""
        return self.loss(policy, reference, getattr(config, self.section))

    def needs_of(self, config: TrainConfig) -> Needs:
        """Return what is taken of each row."""
        several = config.dpo.max_negatives if self.section == "dpo" else 1
        return Needs(
            texts=several if self.uses_texts else 0,
            images=self.uses_images,
            beside=self.joins,
            least=self.needs,
            pairs=config.model.differential.enabled,
        )

    def measures_of(self, config: TrainConfig) -> Needs:
        """Return what is taken of each held-out row: ADPO's is measured against its own rejected text."""
        needs = self.needs_of(config)
        return replace(needs, texts=max(needs.texts, 1) if self.needs_reference else 0, least="nothing")


OBJECTIVES: dict[Objective, Goal] = {
    "sft": Goal(loss=sft, section="sft", needs_reference=False, uses_texts=False, uses_images=False, needs="nothing"),
    "dpo": Goal(loss=dpo, section="dpo", needs_reference=True, uses_texts=True, uses_images=True, needs="either"),
    "mdpo": Goal(
        loss=mdpo, section="mdpo", needs_reference=True, uses_texts=True, uses_images=True, needs="either", joins=True
    ),
    "adavip": Goal(
        loss=adavip,
        section="adavip",
        needs_reference=True,
        uses_texts=True,
        uses_images=True,
        needs="either",
        joins=True,
    ),
    "adpo": Goal(loss=adpo, section="adpo", needs_reference=True, uses_texts=False, uses_images=False, needs="nothing"),
}
"""ADPO's negatives are drawn by its retriever: of a row it needs the chosen text alone. NAMC has losses of its own."""


def needs_of(config: TrainConfig) -> Needs:
    """Return what a run takes of each row."""
    goal = OBJECTIVES.get(config.objective)
    return goal.needs_of(config) if goal else Needs()
