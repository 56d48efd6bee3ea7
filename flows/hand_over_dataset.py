"""Export a dataset under Prefect: what the verb ``export`` does, as a flow run that a deployment can start."""

from typing import Annotated

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed
from pydantic import Field

from pairwright.flows.export_dataset import Verifying, Wanted, export_dataset
from pairwright.tasks.export.formats import FORMATS
from pairwright.tasks.export.select_rows import Selection
from pairwright.tasks.store.files import Folder


@flow(name="export-dataset", flow_run_name="export-{dataset}", persist_result=False)
def hand_over_dataset(
    dataset: str,
    to: str,
    form: Annotated[str, Field(json_schema_extra={"enum": [*FORMATS]})] = "hf",
    licences: list[str] | None = None,
    sources: list[str] | None = None,
    version: Annotated[int, Field(ge=1)] | None = None,
    negatives: str = "",
    splits: list[str] | None = None,
    kinds: list[str] | None = None,
    score: float | None = None,
    model: str = "",
    *,
    verify: bool = False,
) -> State[None]:
    """Write a dataset in a form that other programs read.

    Args:
        dataset: Folder or URL of the dataset.
        to: Folder to write; a new name, or an earlier export.
        form: hf is Parquet that datasets.load_dataset reads; README.md says what the others are.
        licences: Only rows all of whose images are under one of these licences; "unstated" is under none.
        sources: Only rows whose images are from a source of one of these kinds.
        version: A version's number; none is the newest.
        negatives: With the negatives that this ADPO run has mined.
        splits: Only rows of these splits.
        kinds: Only rows of one of these kinds, as the verb's help names them.
        score: Least score of the removal that the rejected images show.
        model: Whom the requests of openai-batch ask.
        verify: Read the result as its consumer does, and fail on the first row that is no good.
    """
    selection = Selection(
        licences=tuple(licences or ()),
        sources=tuple(sources or ()),
        splits=tuple(splits or ()),
        kinds=tuple(kinds or ()),
        score=score,
    )
    wanted = Wanted(
        selection=selection,
        version=version,
        negatives=negatives,
        model=model,
        verifying=Verifying() if verify else None,
    )
    tally = export_dataset(Folder(dataset), to, form=form, wanted=wanted)
    return Completed(message=f"{tally.rows:,} rows are in {to}")
