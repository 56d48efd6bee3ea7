"""Decisions: people accept, reject or edit rows, or undo that; exports and trainings follow.

A decision is about a preference, or about a pair and everything made from it. The latest decision
about a key counts. Judgements of how alike a pair's images are suggest mining thresholds; no row
depends on them.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from pairwright.schemas.control_tokens import find_token
from pairwright.schemas.rows import Negative, PreferenceRow

Verdict = Literal[
    "accept", "reject", "edit", "none", "near-identical", "fits", "unrelated", "unjudged"
]
JUDGEMENTS = ("near-identical", "fits", "unrelated", "unjudged")
"""Verdicts about how alike a pair's images are; the last takes one back. They are kept beside
decisions."""
ACCEPTED = ("accept", "edit")
MOST_TEXT, MOST_NOTE, MOST_NAME = 20_000, 2_000, 100  # characters
AHEAD = timedelta(days=1)
"""Tolerated clock error: a decision dated further in the future could never be taken back."""
BY_A_PERSON = "person"
"""Maker of a rejected text that a person added."""
EDITED, BEFORE = "edited by a person", "before-edit"


def refuse_controls(text: str) -> str:
    """Refuse control characters other than tab and line feed, and lone surrogates."""
    strange = next(
        (c for c in text if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cs")), None
    )
    if strange is not None:
        raise ValueError(f"contains the control character U+{ord(strange):04X}; remove it")
    return text


def refuse_tokens(text: str) -> str:
    """Refuse control tokens of chat formats."""
    token = find_token(text)
    if token:
        raise ValueError(f"contains {token}, a control token of chat formats; remove it")
    return text


Text = Annotated[
    str,
    Field(max_length=MOST_TEXT),
    AfterValidator(refuse_controls),
    AfterValidator(refuse_tokens),
]


class Decision(BaseModel):
    """Decision of one person about one row."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    key: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    """Key of a preference, or of a pair without one."""
    verdict: Verdict
    """"none" takes an earlier decision back, "unjudged" an earlier judgement."""
    chosen: Text = ""
    """With "edit": the new chosen text; empty: unchanged."""
    rejected: Text = ""
    note: Annotated[str, Field(max_length=MOST_NOTE), AfterValidator(refuse_controls)] = ""
    by: Annotated[str, Field(max_length=MOST_NAME), AfterValidator(refuse_controls)] = ""
    """Name of the annotator; empty: not stated."""
    at: Annotated[AwareDatetime, AfterValidator(lambda at: at.astimezone(UTC))]
    """Time of the decision."""

    @model_validator(mode="after")
    def _check_texts(self) -> Self:
        texts = (self.chosen.strip(), self.rejected.strip())
        if self.verdict == "edit" and not any(texts):
            raise ValueError("an edit needs a new chosen or rejected text")
        if self.verdict != "edit" and (self.chosen or self.rejected):
            raise ValueError(
                f"texts are allowed with the verdict edit only, not with {self.verdict}"
            )
        if any(texts) and texts[0] == texts[1]:
            raise ValueError("the new chosen and rejected texts are the same")
        return self

    @property
    def sort_key(self) -> tuple[datetime, str]:
        """Return the sort key of a decision; ties of time are broken the same way everywhere."""
        return self.at, self.model_dump_json()


def parse_decision(line: str | bytes, *, now: datetime | None = None) -> Decision:
    """Return a decision from its JSON; a ``ValueError`` names the problem without the text."""
    try:
        decision = Decision.model_validate_json(line)
    except ValidationError as error:
        raise ValueError(say_errors(error)) from None
    if decision.at > (now or datetime.now(UTC)) + AHEAD:
        raise ValueError(f"at: {decision.at:%Y-%m-%d %H:%M} is in the future")
    return decision


def say_errors(error: ValidationError) -> str:
    """Return the errors, field by field."""
    found = error.errors(include_url=False, include_input=False)[:3]
    return "; ".join(
        ": ".join(filter(None, [".".join(map(str, one["loc"])), one["msg"]])) for one in found
    )


@dataclass(frozen=True)
class Decisions:
    """Decisions that count, one per key."""

    by_key: Mapping[str, Decision] = field(default_factory=dict[str, Decision])
    judged: Mapping[str, Verdict] = field(default_factory=dict[str, Verdict])
    """Latest judgement of each pair, by any annotator."""
    by_annotator: Mapping[str, Mapping[str, Verdict]] = field(
        default_factory=dict[str, Mapping[str, Verdict]]
    )
    """Latest judgement of each pair, by annotator."""

    def __len__(self) -> int:
        return len(self.by_key)

    def decision_on(self, row: PreferenceRow) -> Decision | None:
        """Return the decision that counts for a row: about itself, its source row or its pair."""
        keys = (row.key, row.source_key, row.subject)
        return next((self.by_key[key] for key in keys if key in self.by_key), None)

    def edit(self, row: PreferenceRow) -> PreferenceRow:
        """Return a row with its edited texts, if any."""
        decision = self.decision_on(row)
        return edit_row(row, decision) if decision else row

    def edits(self) -> list[Decision]:
        """Return the decisions that edit texts."""
        return [one for one in self.by_key.values() if one.verdict == "edit"]

    def without_edits(self) -> "Decisions":
        """Return the decisions without edits, for rows with texts that people did not see."""
        return replace(
            self, by_key={key: one for key, one in self.by_key.items() if one.verdict != "edit"}
        )

    def count_verdicts(self) -> dict[str, int]:
        """Return the number of decisions by verdict."""
        return dict(sorted(Counter(one.verdict for one in self.by_key.values()).items()))


UNDECIDED = Decisions()


def latest_decisions(decisions: Iterable[Decision]) -> Decisions:
    """Return the latest decision per key and judgement per annotator, without withdrawn ones."""
    ordered = sorted(decisions, key=lambda one: one.sort_key)
    newest = {(one.key, one.by if one.verdict in JUDGEMENTS else None): one for one in ordered}
    kept = [one for one in newest.values() if one.verdict not in ("none", "unjudged")]
    judgements = sorted(
        (one for one in kept if one.verdict in JUDGEMENTS), key=lambda one: one.sort_key
    )
    return Decisions(
        {one.key: one for one in kept if one.verdict not in JUDGEMENTS},
        {one.key: one.verdict for one in judgements},
        {
            name: {one.key: one.verdict for one in judgements if one.by == name}
            for name in {o.by for o in judgements}
        },
    )


def edit_row(row: PreferenceRow, decision: Decision) -> PreferenceRow:
    """Return a row with the texts of an edit; the rejected text only of an edit of this very row.

    The claims of a new text are unknown. The chosen text before the edit becomes the last of the
    negatives.
    """
    if decision.verdict != "edit":
        return row
    chosen, changed = decision.chosen or row.chosen, row
    if chosen.strip() != row.chosen.strip():
        before = Negative(text=row.chosen, maker=BEFORE, note="", score=0.0)
        changed = replace(
            row,
            chosen=chosen,
            chosen_model=f"{row.chosen_model}, {EDITED}",
            negatives=tuple(
                one for one in (*row.negatives, before) if one.text.strip() != chosen.strip()
            ),
            description="",
            claims="[]",
        )
    if decision.key != row.key or not decision.rejected:
        return changed
    return replace(
        changed,
        rejected=decision.rejected,
        rejected_maker=row.rejected_maker or BY_A_PERSON,
        rejected_note=", ".join(filter(None, [row.rejected_note, EDITED])),
        rejected_claims="[]",
    )
