"""Evaluate a model under Prefect: the verb ``evaluate model`` as a flow run, its scores as a table."""

from pathlib import Path
from typing import Annotated

from prefect import flow
from prefect.artifacts import create_table_artifact
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed
from pydantic import Field

from pairwright.flows.evaluate_model import Wanted, evaluate_model
from pairwright.flows.find_judge import find_judge, served_at
from pairwright.flows.progress import log_steps
from pairwright.flows.show_marks import mark_notes
from pairwright.tasks.evaluation.benchmark_list import BENCHMARKS

Name = Annotated[str, Field(json_schema_extra={"enum": [*BENCHMARKS]})]


@flow(name="evaluate-model", flow_run_name="evaluate-{checkpoint}-on-{benchmark}", persist_result=False)
def score_model(
    checkpoint: str,
    benchmark: Name,
    data: str,
    to: str = "",
    server: str = "",
    judge: str = "",
    perturb: str = "",
    limit: Annotated[int, Field(ge=0)] = 0,
) -> State[None]:
    """Ask a model a benchmark's questions, and score its answers; what was answered before is not asked again.

    Args:
        checkpoint: A checkpoint, a run's folder, a name on the Hub; or the model's name on the server.
        benchmark: Which one; `pairwright evaluate model --benchmark list` says what each needs.
        data: Folder of its annotations and images, or a dataset.
        to: File for the scores; empty: below evaluations/, where the worker runs.
        server: Address of the OpenAI-compatible server that has the model; empty: the worker loads it.
        judge: Who rates: a server's address, or a profile.
        perturb: noise:5, fog:5 or words:0.4.
        limit: Only so many items; 0: all.
    """
    wanted = Wanted(
        model=checkpoint,
        benchmark=benchmark,
        data=Path(data),
        to=Path(to) if to else None,
        limit=limit or None,
        server=served_at(server, checkpoint) if server else None,
        judge=find_judge(judge) if judge else None,
        perturb=perturb,
    )
    found = evaluate_model(wanted, watch=log_steps)
    rows = [
        {"score": one.name, "of": one.category or "all", "value": one.value, "low": one.low, "high": one.high}
        for one in found.results.scores
    ]
    create_table_artifact(key=f"scores-{benchmark}", table=rows, description="\n\n".join(mark_notes(found)))
    if owed := found.results.owed:
        return Failed(message=f"{owed:,} questions were not answered: run it again, which asks only these")
    said = ", ".join(f"{one.name} {one.value:.3f}" for one in found.results.scores if one.value is not None)
    return Completed(message=said or "there is nothing to score")
