"""Bounds that change no row: budget of a build, gates of a version, health of preferences."""

from typing import Annotated

from pydantic import Field

from pairwright.schemas.section import Count, Section, Share


class BudgetConfig(Section):
    """Budget of a build, checked between rounds of shards; 0 sets no limit."""

    max_calls: Count = 0
    """Answers of served models to this dataset, over all of its builds; 0: no limit."""
    max_tokens: Count = 0
    """Tokens of prompts and answers together, over all of its builds; 0: no limit."""
    max_hours: Annotated[float, Field(ge=0)] = 0.0
    """Hours that one build may take; 0: no limit."""

    @property
    def limits(self) -> dict[str, float]:
        """Return the limits that are set, by what they limit."""
        return {name.removeprefix("max_"): float(value) for name, value in self if value}


class GatesConfig(Section):
    """Gates: bounds that a build must meet to become the current version."""

    min_yield: dict[str, Share] = Field(default_factory=dict[str, float])
    """Minimum share of each table's inputs that end as ok ("pairs: 0.2"); default: one row of the
    last table."""
    max_failed: Share = 0.02
    """Maximum share of any table's inputs that failed or are pending; 1: any."""
    min_kept: Share = 0.6
    """Minimum number of images, as a share of those of the version before, if the source and its
    settings are the same: a truncated file, or a folder that is half gone, is held back; 0: any."""


class HealthConfig(Section):
    """Bounds beyond which the report warns about the preferences; none changes or drops a row.

    The bounds are ours. 1 (0 for ``min_changed_share``) switches one off.
    """

    max_text_only_accuracy: Share = 0.8
    """Maximum share of rows in which a classifier that sees no image finds the chosen text; chance
    is 0.5."""
    max_blind_share: Share = 0.8
    """Maximum share of rows whose chosen text a model that sees no image expects anyway (table
    `hardness`)."""
    max_longer_share: Share = 0.7
    """Maximum share of rows in which the same side, chosen or rejected, has the longer text."""
    max_true_share: Share = 0.02
    """Maximum share of true texts among the rejected texts that were checked."""
    max_leaked_share: Share = 0.0
    """Maximum share of held-out rows whose chosen text a training row rejects, word for word."""
    max_repeated_share: Share = 0.1
    """Maximum share of rows that repeat both texts of another row."""
    min_changed_share: Share = 0.001
    """Minimum share of pixels that differ visibly in the median rejected image."""
