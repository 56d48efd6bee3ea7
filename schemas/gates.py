"""What a profile asks of a version of the dataset before it is published; none of it changes a row."""

from typing import Annotated

from pydantic import Field

from pairwright.schemas.section import Positive, Section, Share

Drift = Annotated[float, Field(ge=0)]


class GatesConfig(Section):
    """Say which builds publish no version, so that the last good one stays what readers get.

    Drift is the population stability index (PSI) against the last version; below 0.1 is commonly taken for no change,
    above 0.25 for a large one. A bound of 0 switches its gate off.
    """

    min_yield: dict[str, Share] = Field(default_factory=dict[str, float])
    """Per table, the least share of its inputs that end as ok ("pairs: 0.2"); none by default."""
    max_failed: Share = 0.5
    """The largest share of any table's inputs that may have failed or be undone; 1: any."""
    max_length_drift: Drift = 0.0
    """How far the lengths of texts, in characters, may drift; 0: any."""
    max_similarity_drift: Drift = 0.0
    """How far the similarities of pairs may drift; 0: any."""
    max_reason_drift: Drift = 0.0
    """How far the shares of what became of the inputs (ok, and every reason) may drift; 0: any."""
    min_drift_rows: Positive = 200
    """Tables with fewer rows, now or in the last version, are not compared: of ten bins the index is 0.09 +- 0.04 by
    chance alone for 200 rows."""
