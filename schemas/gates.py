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
    """Minimum share of each table's inputs that end as ok ("pairs: 0.2"); none by default."""
    max_failed: Share = 0.5
    """Maximum share of any table's inputs that failed or is undone; 1: any."""
    max_length_drift: Drift = 0.0
    """Maximum drift of the lengths of texts in characters; 0: any."""
    max_similarity_drift: Drift = 0.0
    """Maximum drift of the similarities of pairs; 0: any."""
    max_reason_drift: Drift = 0.0
    """Maximum drift of the shares of outcomes (ok, and each reason); 0: any."""
    min_drift_rows: Positive = 200
    """Minimum rows, now and before, of a table whose drift is measured (by chance, 200 rows drift by about 0.09)."""
