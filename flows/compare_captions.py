"""Evaluate captions under Prefect: the verb ``evaluate captions`` as a flow run, its scores as a table."""

from pathlib import Path
from typing import Annotated

from prefect import flow
from prefect.artifacts import create_table_artifact
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed
from pydantic import Field

from pairwright.flows.evaluate_captions import evaluate_captions
from pairwright.flows.show_scores import score_notes
from pairwright.tasks.evaluation.protocols import MISSING, PROTOCOLS
from pairwright.tasks.evaluation.score_captions import METRICS, ScoringConfig

Protocol = Annotated[str, Field(json_schema_extra={"enum": [*PROTOCOLS]})]
Missing = Annotated[str, Field(json_schema_extra={"enum": [*MISSING]})]


@flow(name="evaluate-captions", flow_run_name="evaluate-{predictions}", persist_result=False)
def compare_captions(
    predictions: str,
    references: str,
    protocol: Protocol = "coco",
    metrics: list[Annotated[str, Field(json_schema_extra={"enum": [*METRICS]})]] | None = None,
    missing: Missing = "refuse",
) -> State[None]:
    """Score captions against references, as coco-caption does, with bootstrap intervals.

    Args:
        predictions: File with one text per id; JSON Lines, JSON, or COCO's results.
        references: File with texts per id; the same, COCO's annotations, or Spot-the-Diff's own.
        protocol: Which texts are an item's references.
        metrics: Some of them, which must run on the worker's machine; none is all that do.
        missing: What becomes of references without a prediction.
    """
    config = ScoringConfig(tuple(metrics or METRICS))
    found = evaluate_captions(Path(predictions), Path(references), config, protocol=protocol, missing=missing)
    rows = [{"metric": one.name, "score": one.value, "low": one.low, "high": one.high} for one in found.found.scores]
    create_table_artifact(key="caption-scores", table=rows, description="\n\n".join(score_notes(found)))
    if metrics and (skipped := found.found.skipped):
        return Failed(message="; ".join(f"{name} was skipped: {why}" for name, why in skipped.items()))
    said = ", ".join(f"{one.name} {100 * one.value:.1f}" for one in found.found.scores)
    return Completed(message=f"x 100: {said}")
