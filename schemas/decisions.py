"""What people decide about rows: accept, reject or edit one, or take that back. Exports and trainings follow.

A decision is about a preference, or about a pair and all that is made of it. Of several about one key the latest
counts, by when it was made. How alike people find a pair's images suggests thresholds of mining; no row depends on it.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from pairwright.schemas.rows import Negative, PreferenceRow

Verdict = Literal["accept", "reject", "edit", "none", "near-identical", "fits", "unrelated", "unjudged"]
JUDGEMENTS = ("near-identical", "fits", "unrelated", "unjudged")
"""Verdicts about how alike a pair's images are; the last takes another back. They stand beside a decision."""
ACCEPTED = ("accept", "edit")
MOST_TEXT, MOST_NOTE = 20_000, 2_000
"""Characters."""
AHEAD = timedelta(days=1)
"""By how much a clock may be wrong: a decision from further ahead could never be taken back."""
BY_A_PERSON = "person"
"""Maker of a rejected text where there was none."""
EDITED, BEFORE = "edited by a person", "before-edit"


def _plain(text: str) -> str:
    """Refuse characters that no text holds: controls but tab and line feed, and halves of others."""
    strange = next((c for c in text if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cs")), None)
    if strange is not None:
        raise ValueError(f"holds the control character U+{ord(strange):04X}")
    return text


Text = Annotated[str, Field(max_length=MOST_TEXT), AfterValidator(_plain)]


class Decision(BaseModel):
    """Be what one person decided about one row."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    key: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    """Of a preference, or of a pair that has none."""
    verdict: Verdict
    """"none" takes an earlier decision back, "unjudged" an earlier judgement."""
    chosen: Text = ""
    """With "edit": the new chosen text; empty: as it is."""
    rejected: Text = ""
    note: Annotated[str, Field(max_length=MOST_NOTE), AfterValidator(_plain)] = ""
    at: Annotated[AwareDatetime, AfterValidator(lambda at: at.astimezone(UTC))]
    """When it was made."""

    @model_validator(mode="after")
    def _check_texts(self) -> Self:
        texts = (self.chosen.strip(), self.rejected.strip())
        if self.verdict == "edit" and not any(texts):
            raise ValueError("an edit brings a new chosen or rejected text")
        if self.verdict != "edit" and (self.chosen or self.rejected):
            raise ValueError(f"only an edit brings texts, and this says {self.verdict}")
        if any(texts) and texts[0] == texts[1]:
            raise ValueError("the new texts are the same")
        return self

    @property
    def order(self) -> tuple[datetime, str]:
        """Return what tells the later of two decisions; of one moment, the same one everywhere."""
        return self.at, self.model_dump_json()


def parse_decision(line: str | bytes, *, now: datetime | None = None) -> Decision:
    """Return a decision from its JSON; a ``ValueError`` says what is wrong with it, without repeating it."""
    try:
        decision = Decision.model_validate_json(line)
    except ValidationError as error:
        raise ValueError(say_errors(error)) from None
    if decision.at > (now or datetime.now(UTC)) + AHEAD:
        raise ValueError(f"at: {decision.at:%Y-%m-%d %H:%M} is yet to come")
    return decision


def say_errors(error: ValidationError) -> str:
    """Return what is wrong, field by field."""
    found = error.errors(include_url=False, include_input=False)[:3]
    return "; ".join(": ".join(filter(None, [".".join(map(str, one["loc"])), one["msg"]])) for one in found)


@dataclass(frozen=True)
class Decisions:
    """Hold the decisions that count, one per key."""

    by_key: Mapping[str, Decision] = field(default_factory=dict[str, Decision])
    judged: Mapping[str, Verdict] = field(default_factory=dict[str, Verdict])
    """By pair, how alike its images are."""

    def __len__(self) -> int:
        return len(self.by_key)

    def about(self, row: PreferenceRow) -> Decision | None:
        """Return what counts for a row: a decision about itself, about the one it was made of, or about its pair."""
        keys = (row.key, row.source_key, row.subject)
        return next((self.by_key[key] for key in keys if key in self.by_key), None)

    def edit(self, row: PreferenceRow) -> PreferenceRow:
        """Return a row with the texts that count."""
        decision = self.about(row)
        return edit_row(row, decision) if decision else row

    def edits(self) -> list[Decision]:
        """Return those that bring texts."""
        return [one for one in self.by_key.values() if one.verdict == "edit"]

    def without_edits(self) -> "Decisions":
        """Return the decisions for rows whose texts are of another kind than those that people saw."""
        return replace(self, by_key={key: one for key, one in self.by_key.items() if one.verdict != "edit"})

    def count(self) -> dict[str, int]:
        """Return how many there are of each verdict."""
        return dict(sorted(Counter(one.verdict for one in self.by_key.values()).items()))


UNDECIDED = Decisions()


def latest(decisions: Iterable[Decision]) -> Decisions:
    """Return those that count: the latest of each key, unless it takes back."""
    newest = {(one.key, one.verdict in JUDGEMENTS): one for one in sorted(decisions, key=lambda one: one.order)}
    kept = [one for one in newest.values() if one.verdict not in ("none", "unjudged")]
    return Decisions(
        {one.key: one for one in kept if one.verdict not in JUDGEMENTS},
        {one.key: one.verdict for one in kept if one.verdict in JUDGEMENTS},
    )


def edit_row(row: PreferenceRow, decision: Decision) -> PreferenceRow:
    """Return a row with the texts of an edit; a rejected text only where the edit is about this very row.

    What a new text claims is not known. The chosen text before the edit is the last of the further negatives.
    """
    if decision.verdict != "edit":
        return row
    chosen, changed = decision.chosen or row.chosen, row
    own = decision.key == row.key and bool(decision.rejected)
    if chosen.strip() != row.chosen.strip():
        before = Negative(text=row.chosen, maker=BEFORE, note="", score=0.0)
        changed = replace(
            row,
            chosen=chosen,
            chosen_model=f"{row.chosen_model}, {EDITED}",
            negatives=tuple(one for one in (*row.negatives, before) if one.text.strip() != chosen.strip()),
            description="",
            claims="[]",
        )
    if not own:
        return changed
    note = ", ".join(filter(None, [row.rejected_note, EDITED]))
    return replace(
        changed,
        rejected=decision.rejected,
        rejected_maker=row.rejected_maker or BY_A_PERSON,
        rejected_note=note,
        rejected_claims="[]",
    )
