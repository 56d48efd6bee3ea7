"""Have a run's start score the dataset's answers, where the run is compared with a table of them.

The table is a stage's, beside the dataset's own: runs with the same start, pixels and precision share it. What a run
needs of it lies in the run's folder, one file that all of its processes map into memory.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pairwright.flows.make_table import make_table
from pairwright.flows.version import Version
from pairwright.schemas.errors import TrainingError
from pairwright.schemas.rows import PreferenceRow
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.store.stage import Planned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pairwright.tasks.training.find_model import Found


def score_reference(
    version: Version, config: TrainConfig, *, found: "Found", run: Path, after: "Sequence[Planned]" = ()
) -> None:
    """Make what a run is compared with, as far as that can be made before the training.

    Args:
        version: the dataset's that it trains on.
        config: the run's.
        found: the model that it starts from.
        run: its folder.
        after: tables beside the dataset's, of which the run's own may be one.

    Raises:
        ConfigError: the run cannot be compared so.
        ModelError: the model cannot be loaded.
        TrainingError: some rows could not be scored.
    """
    from pairwright.tasks.training.load_model import choose_storage, load_model
    from pairwright.tasks.training.references import FILE, choose_reference, has_table, write_table
    from pairwright.tasks.training.score_rows import STAGE, release_scorer, scoring_config

    if choose_reference(config) != "table":
        return
    own = scoring_config(found, config)
    if has_table(run / FILE, own):
        return
    try:
        planned = make_table(version, replace(STAGE, reads={config.table: PreferenceRow}), own, after=after)
    except TrainingError:
        load_model(found.folder, config.model, dtype=choose_storage(config))  # says so if it is the model's fault
        raise
    finally:
        release_scorer()
    with version.settled([*after, planned]) as (build, _):
        write_table(build, planned, run / FILE)
