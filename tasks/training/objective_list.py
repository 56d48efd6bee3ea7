"""All training objectives by name: the only place where an implementation is chosen."""

from collections.abc import Mapping

from pairwright.tasks.training.grpo.grpo_objective import GrpoObjective
from pairwright.tasks.training.namc.namc_objective import NamcObjective
from pairwright.tasks.training.objective import Objective
from pairwright.tasks.training.preference_objective import PreferenceObjective

PREFERENCES = PreferenceObjective()
OBJECTIVES: Mapping[str, Objective] = {
    "sft": PREFERENCES,
    "dpo": PREFERENCES,
    "mdpo": PREFERENCES,
    "adavip": PREFERENCES,
    "symmpo": PREFERENCES,
    "adpo": PREFERENCES,
    "grpo": GrpoObjective(),
    "namc": NamcObjective(),
}
