"""What stages were measured to need: figures of this project's own measurements, with the machine named."""

from typing import Annotated

from pydantic import Field

from pairwright.schemas.section import Section

Amount = Annotated[float, Field(ge=0)]


class StoredRate(Section):
    """Say what one input row of a stage gave and took; what was not measured is left out."""

    reach: Amount | None = None
    """Input rows per row of the table that the stage reads."""
    rows: Amount | None = None
    """Rows out."""
    seconds: Amount | None = None
    """Seconds of one worker process; left out where the machine had other work."""
    cpu_seconds: Amount | None = None
    """Seconds of a core."""
    bytes: Amount | None = None
    """On disk, beside what each part takes."""
    part_bytes: Amount = 0.0
    """What a part takes beside its rows."""
    calls: Amount | None = None
    """Answers of a served model."""
    prompt_tokens: Amount | None = None
    completion_tokens: Amount | None = None
    start_seconds: Amount | None = None
    """Until the stage's first shard begins: processes, libraries, weights; once."""


class StoredRates(Section):
    """Be the measurement of one profile on one machine."""

    profile: str
    """The profile that was measured; a rate holds where a stage is configured as there."""
    settings: tuple[str, ...] = ()
    """What was set over it."""
    machine: str
    """Processor, cores, memory, GPU."""
    device: str
    """"cpu", or the GPU's name."""
    measured: str
    """Date and command."""
    shard_seconds: Amount = 0.0
    """What a shard takes beside its rows."""
    stages: dict[str, StoredRate]
