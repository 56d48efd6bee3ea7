"""Decisions: people accept, reject or edit rows, or undo that; exports and trainings follow.

A decision is about a preference, or about a pair and everything made from it. The decision about a
key that was stored last counts, whatever the clocks say. It outlives the row: when a growing
dataset gives a preference another rejected text, and so another key, it stays rejected; a row of
the same texts has the same decision. Judgements of how alike a pair's images are suggest mining
thresholds; no row depends on them.
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
from pairwright.schemas.rows import Negative, PreferenceRow, make_key

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
    """Time of the decision; the order of storing counts, not this."""
    subject: str = ""
    """Pair or image that the row is about. This and the next two are filled in when a decision is
    stored; empty: by an earlier release."""
    question: str = ""
    """Hash of subject, prompt and chosen text of the row."""
    texts: str = ""
    """Hash of these and the rejected side."""

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
        """Return the sort key of decisions of earlier releases, which have no order."""
        return self.at, self.model_dump_json()

    @property
    def is_about_texts(self) -> bool:
        """Return whether it is about a preference's texts, and is no judgement."""
        return bool(self.question) and self.verdict not in JUDGEMENTS

    def about(self, row: PreferenceRow) -> "Decision":
        """Return the decision with what the row shows."""
        question, texts = hash_texts(row)
        return self.model_copy(
            update={"subject": row.subject, "question": question, "texts": texts}
        )


def hash_texts(row: PreferenceRow) -> tuple[str, str]:
    """Return the hash of a row's question (subject, prompt, chosen text), and of all its texts."""
    turns = [turn.text for turn in row.prompt]
    question = make_key("question", row.subject, *turns, row.chosen)
    texts = make_key("texts", question, row.rejected, row.rejected_image_maker)
    return question, texts


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
    by_texts: Mapping[str, Decision] = field(default_factory=dict[str, Decision])
    """Last decision about rows of the same texts, also a withdrawn one."""
    by_question: Mapping[str, Decision] = field(default_factory=dict[str, Decision])
    """Last decision about rows of the same subject, prompt and chosen text, likewise."""

    def __len__(self) -> int:
        return len(self.by_key)

    def decision_on(self, row: PreferenceRow) -> Decision | None:
        """Return the decision that counts for a row: about itself, its source row or its pair.

        Without one, that about a row which it replaces: of the same texts, or a rejected one with
        another rejected text.
        """
        for key in (row.key, row.source_key, row.subject):
            if key in self.by_key:
                return self.by_key[key]
        if not self.by_question:
            return None
        question, texts = hash_texts(row)
        same = self.by_texts.get(texts)
        if same:
            return same if same.verdict != "none" else None
        replaced = self.by_question.get(question)
        return replaced if replaced and replaced.verdict == "reject" else None

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
            self,
            by_key={key: one for key, one in self.by_key.items() if one.verdict != "edit"},
            by_texts={},
            by_question={},
        )

    def count_verdicts(self) -> dict[str, int]:
        """Return the number of decisions by verdict."""
        return dict(sorted(Counter(one.verdict for one in self.by_key.values()).items()))


UNDECIDED = Decisions()


def latest_decisions(decisions: Iterable[Decision]) -> Decisions:
    """Return the last decision per key and judgement per annotator, without withdrawn ones.

    ``decisions`` are in the order in which they were stored.
    """
    newest: dict[tuple[str, str | None], Decision] = {}
    by_texts: dict[str, Decision] = {}
    by_question: dict[str, Decision] = {}
    for decision in decisions:
        place = (decision.key, decision.by if decision.verdict in JUDGEMENTS else None)
        newest.pop(place, None)  # so that the dictionary keeps the order of the last ones
        newest[place] = decision
        if decision.is_about_texts:
            by_texts[decision.texts] = decision
            by_question[decision.question] = decision
    kept = [one for one in newest.values() if one.verdict not in ("none", "unjudged")]
    judgements = [one for one in kept if one.verdict in JUDGEMENTS]
    return Decisions(
        {one.key: one for one in kept if one.verdict not in JUDGEMENTS},
        {one.key: one.verdict for one in judgements},
        {
            name: {one.key: one.verdict for one in judgements if one.by == name}
            for name in {o.by for o in judgements}
        },
        by_texts,
        by_question,
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
