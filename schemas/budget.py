"""What a build may use at the most: the `budget` of a profile's `run` section."""

from typing import Annotated

from pydantic import Field

from pairwright.schemas.section import Count, Section

Amount = Annotated[float, Field(ge=0)]


class BudgetConfig(Section):
    """Budget of a build, which is looked at between rounds of shards; 0 sets no limit."""

    max_calls: Count = 0
    """Answers of served models to this dataset, over all of its builds; 0: no limit."""
    max_tokens: Count = 0
    """Tokens of prompts and answers together, over all of its builds; 0: no limit."""
    max_hours: Amount = 0.0
    """Hours that one build may take; 0: no limit."""
    max_gpu_hours: Amount = 0.0
    """Hours of one build times the GPUs of this machine that it holds, not those of other servers; 0: no limit."""
    max_disk_gb: Amount = 0.0
    """Gigabytes (10^9 bytes) of the dataset's folder; 0: no limit."""

    @property
    def limits(self) -> dict[str, float]:
        """Return the limits that are set, by what they limit."""
        return {name.removeprefix("max_"): float(value) for name, value in self if value}
