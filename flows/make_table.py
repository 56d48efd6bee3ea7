"""Make a table beside a dataset's own: what a training needs of its rows (log-probabilities, vectors of texts).

It is a stage's like any other: its fingerprint names what it was made with, what is there already is not made again,
and what was killed goes on. It belongs to no version of the dataset; it is made of one, whatever a build does.
"""

from collections.abc import Sequence

from pairwright.flows.find_workers import working
from pairwright.flows.run_build import Request, run_stage
from pairwright.flows.version import Version
from pairwright.schemas.errors import TrainingError
from pairwright.schemas.section import Section
from pairwright.tasks.store.stage import Planned, Stage


def make_table(version: Version, stage: Stage, config: Section, *, after: Sequence[Planned] = ()) -> Planned:
    """Do what a stage owes beside a version, and return it planned: its table is whole then."""
    planned = version.plan(stage, config, after=after)
    request = Request.again(version.folder, version.record)
    with version.opened([*after, planned]) as build, working(request) as work:
        version.settle(build, version.planned)
        for one in after:
            build.settle(one)
        counts, failures = run_stage(build, planned, request, work)
    if (owed := counts.failed + counts.pending) or failures:
        why = failures[0].error if failures else next(iter(counts.reasons), "not known")
        raise TrainingError(
            f"{stage.name}: {owed:,} of {counts.of:,} rows could not be made: {why}. What is made is kept; the same "
            "command goes on with it"
        )
    return planned
