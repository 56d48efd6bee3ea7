"""Objective ``grpo``: TRL's GRPO on the dataset's prompts, rewarded by the scene graphs.

Ours are the rows, the reward and the run; the optimiser of answers is TRL's. Needs no PyTorch
before ``fit``.
"""

from functools import partial
from importlib.util import find_spec

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import PreferenceRow
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.training.check_environment import (
    check_libraries,
    count_launched,
    explain_out_of_memory,
)
from pairwright.tasks.training.estimate_memory import need_less
from pairwright.tasks.training.freeze_dataset import freeze_dataset, open_training_table
from pairwright.tasks.training.freeze_rows import Refused
from pairwright.tasks.training.grpo.freeze_truths import read_truths, write_truths
from pairwright.tasks.training.losses import needs_of
from pairwright.tasks.training.objective import DatasetTables, Ended, FrozenData, Job
from pairwright.tasks.training.preference_objective import PreferenceObjective
from pairwright.tasks.training.runs import Run

NO_TRUTH = "no scene graphs of one scene with known changes"


class GrpoObjective(PreferenceObjective):
    """Training of a vision-language model by GRPO, on exact rewards."""

    def check(self, config: TrainConfig) -> None:
        """Check that TRL is installed, and what it is asked for."""
        check_libraries(config)
        if count_launched() > 1:
            raise ConfigError("grpo: trains in one process here; leave out the launcher")
        missing = [name for name in ("trl", "datasets") if find_spec(name) is None]
        if missing:
            raise ConfigError(
                f"--objective grpo: {', '.join(missing)} not installed: "
                "python -m pip install -c constraints.txt -e '.[grpo]'"
            )

    def freeze(self, config: TrainConfig, run: Run, tables: DatasetTables) -> FrozenData:
        """Freeze the rows whose pairs have a truth, and the truths."""
        truths = read_truths(tables)

        def refuse(row: PreferenceRow) -> Refused | None:
            return None if row.key in truths else Refused(key=row.key, reason=NO_TRUTH)

        with open_training_table(tables, config, []) as table:
            needs = needs_of(config)
            frozen = freeze_dataset(config, run, table, tables, needs=needs, refuse=refuse)
        write_truths(run.folder, truths)
        return frozen

    def fit(self, job: Job) -> Ended:
        """Train with TRL's GRPOTrainer."""
        from pairwright.tasks.training.grpo.fit_grpo import fit_grpo

        with explain_out_of_memory(job.run, partial(need_less, job.config)):
            return fit_grpo(job)
