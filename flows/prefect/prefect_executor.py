"""Executor that shows a build in Prefect: each step is a subflow, each shard a task run.

Shards run in the workers of another executor, which need not know Prefect. If its server is lost,
the build continues without it.
"""

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from queue import Queue
from threading import Event
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Completed, Failed
from prefect.task_runners import ThreadPoolTaskRunner

from pairwright.flows.building.progress import log_outcome
from pairwright.flows.prefect.relay import UNREACHED, dataset_name
from pairwright.flows.versions.show_status import say_shard, say_unfinished
from pairwright.schemas.errors import PairwrightError
from pairwright.tasks.store.executor import Executor, Outcome, RunStages
from pairwright.tasks.store.shard import ShardRef
from pairwright.tasks.store.stage import Planned

# threads that only wait; the workers set the pace
RUNNER: Any = ThreadPoolTaskRunner(max_workers=512)
# task runs submitted per worker process: enough to keep workers busy, few to lose with a server
AHEAD = 2
log = logging.getLogger(__name__)
Ended = Queue[tuple[ShardRef, list[Outcome]]]
"""Shards whose task runs ended, each with its outcome, or without one if it did not run."""


class PrefectExecutor:
    """Executor of a build in the current flow run, by the workers of another executor."""

    def __init__(self, workers: Executor, dataset: str) -> None:
        """Wrap an executor for a dataset's build."""
        self.watcher = workers.watcher
        self._workers = workers
        self._dataset = dataset
        self._lost = Event()  # whether Prefect's server is lost

    @property
    def count(self) -> int:
        """Return the number of shards that run at once."""
        return self._workers.count

    def submit(self, planned: Planned, shards: Sequence[ShardRef]) -> Iterator[Outcome]:
        """Run shards as task runs.

        If Prefect's server is lost, this shard and later ones run without them.
        """
        run_task = _make_task(planned, self._workers)
        waiting = deque(shards)
        ended: Ended = Queue()
        not_run: list[ShardRef] = []
        running = 0
        while running or (waiting and not self._lost.is_set()):
            while waiting and not self._lost.is_set() and running < AHEAD * self.count:
                _submit_task(run_task, planned, waiting.popleft(), ended)
                running += 1
            shard, outcomes = ended.get()
            running -= 1
            if not outcomes:
                log.warning(
                    "%s: its task run did not start (Prefect's server lost?); the build continues",
                    shard.name,
                )
                not_run.append(shard)
                self._lost.set()
            yield from outcomes
        for outcome in self._workers.submit(planned, [*not_run, *waiting]):
            log_outcome(planned, outcome)
            yield outcome

    def run_one(self, planned: Planned, shard: ShardRef) -> Outcome:
        """Run one shard without a task run."""
        return self._workers.run_one(planned, shard)

    def run_step(self, step: str, run_stages: RunStages) -> None:
        """Run the stages of a step as a subflow; without Prefect once its server is lost."""
        runs = StepRun(run_stages, self._dataset, self._lost)
        try:
            if not self._lost.is_set():
                runs.run_as_subflow(step)
        except UNREACHED as error:
            log.warning("%s: lost Prefect's server (%s); the build continues", step, error)
            self._lost.set()
        runs.finish()

    def stop(self) -> None:
        """Stop the workers."""
        self._workers.stop()


class StepRun:
    """Run of a step's stages, as a subflow or without one."""

    def __init__(self, run_stages: RunStages, dataset: str, lost: Event) -> None:
        self._waiting = [run_stages]
        self._dataset = dataset
        self._lost = lost
        self._errors: list[Exception] = []
        self._ending = ExitStack()

    def run_as_subflow(self, step: str) -> None:
        """Run the stages as a subflow of the current flow run."""

        def run_stages(dataset: str) -> State[None]:  # noqa: ARG001  (names the run)
            return self._run()

        run_stages.__qualname__ = step
        subflow = flow(
            name=step, flow_run_name=f"{step}-{{dataset}}", task_runner=RUNNER, persist_result=False
        )
        with self._ending:
            subflow(run_stages)(dataset_name(self._dataset), return_state=True)

    def finish(self) -> None:
        """Run the stages unless they have run; raise the error that ended them, if any."""
        if self._waiting:
            run_stages = self._waiting.pop()
            run_stages()
        if self._errors:
            raise self._errors.pop()

    def _run(self) -> State[None]:
        """Run the stages once; return the state of their subflow."""
        try:
            # popped, since Prefect keeps the subflow's function: the build's objects are released
            counts = self._waiting.pop()()
        except PairwrightError as error:  # raised again in the build's flow run
            self._errors.append(error)
            return Failed(message=str(error))
        except Exception as error:
            self._errors.append(error)
            raise
        if self._lost.is_set():
            # report the end in one attempt, not in minutes of retries while the build waits
            self._ending.enter_context(temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}))
        unfinished = list(say_unfinished(counts, self._dataset))
        if unfinished:
            return Failed(message="\n".join(unfinished))
        return Completed(message=", ".join(f"{count.stage} {count.rows:,}" for count in counts))


def _make_task(planned: Planned, workers: Executor) -> Any:
    """Return the task of a stage, whose runs are named after its shards."""
    stage = planned.stage

    def run_shard(planned: Planned, shard: ShardRef, outcomes: list[Outcome]) -> State[None] | None:
        outcome = workers.run_one(planned, shard)
        outcomes.append(outcome)
        log_outcome(planned, outcome)
        failure = say_shard(planned, outcome)
        return Failed(message=failure) if failure else None

    run_shard.__qualname__ = stage.name  # Prefect derives the task's key from it
    return task(
        name=stage.name,
        task_run_name="{shard.name}",
        tags=[stage.name, stage.group],
        cache_policy=NO_CACHE,
        persist_result=False,
        # with 0, Prefect logs a failed state as a missing exception: "NoneType: None"
        retries=1,
        retry_condition_fn=lambda _task, _run, _state: False,
    )(run_shard)


def _submit_task(run_task: Any, planned: Planned, shard: ShardRef, ended: Ended) -> None:
    """Submit the task run of a shard, which is added to ``ended`` when it ends."""
    outcomes: list[Outcome] = []
    future = run_task.submit(planned, shard, outcomes)
    future.add_done_callback(lambda _: ended.put((shard, outcomes)))
