"""What the writers of a comparison's parts look at: both graphs, their contrasts, and a source of variety."""

from dataclasses import dataclass
from random import Random
from typing import Literal

from pairwright.prompts import load_wordings
from pairwright.schemas.claims import Claim, Graphs
from pairwright.schemas.scene import SceneObject
from pairwright.tasks.captioning.contrast import Contrast
from pairwright.tasks.captioning.statements import SIDES, Side, capital


@dataclass(frozen=True, slots=True)
class Scope:
    """Hold what the writers of the axes look at."""

    graphs: Graphs
    contrasts: list[Contrast]
    rng: Random

    @property
    def one_world(self) -> bool:
        """Say whether both are photographs of one world."""
        return self.graphs[0].world == self.graphs[1].world

    def say(self, kind: str, **values: object) -> str:
        """Choose a wording."""
        return capital(load_wordings("comparison_sentences").say(kind, self.rng, **values))

    def lost(self) -> list[tuple[Side, SceneObject]]:
        """Return the objects that one photograph lacks, with the side that has them."""
        return [lost for contrast in self.contrasts for lost in contrast.lost]

    def phrases(self, kind: Literal["light", "viewpoint", "place"]) -> tuple[Claim, Claim]:
        """Claim for both photographs what their graphs say of the light, the viewpoint or the place."""
        first, second = (Claim(side=side, kind=kind, value=getattr(self.graphs[side], kind)) for side in SIDES)
        return first, second
