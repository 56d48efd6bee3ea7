"""Descriptions of differences against human references, on the papers' test splits.

Spot-the-Diff, CLEVR-Change, CLEVR-DC and Image-Editing-Request, in the layouts of the sources of
these names. The model is asked once per pair, all of whose texts are references; texts are compared
in lower case without punctuation, as by coco-caption. Needs pycocoevalcap; METEOR and SPICE need
Java, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

from pairwright.prompts import load_wordings
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation import benchmark
from pairwright.tasks.evaluation.measured import Measured
from pairwright.tasks.evaluation.read_captions import Record, match_captions, read_captions
from pairwright.tasks.evaluation.score_captions import (
    INSTALL,
    ScoringConfig,
    measure_captions,
    require_installed,
)

TEST = "test"
PROMPT, KIND = (
    "ask_difference",
    "given",
)  # prompt file, and the kind of its wordings used; the first wording is taken
NO_CHANGE = "no_change"
SPOT = "spot-the-diff"
SPOT_LISTS = tuple(f"{folder}{TEST}.json" for folder in ("annotations/", "data/annotations/", ""))
SPOT_PROTOCOLS = (SPOT, "spot-the-diff-records", "spot-the-diff-multi")
RULE = (
    "The answer is scored against the references of its pair, as by `pairwright evaluate captions`."
)
NOTE = "the question is ours, as the papers' are not public"


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """References of answers; a record is named after its question."""

    records: Sequence[Record]  # several per item are possible
    protocols: tuple[str, ...] = (
        "coco",
    )  # the first scores all items; each other one is a category
    groups: Mapping[str, str] = field(
        default_factory=dict[str, str]
    )  # categories of items, scored separately, too

    def names(self) -> list[str]:
        """Return the names of the items with references."""
        matched = match_captions(
            [], self.records, protocol=self.protocols[0], missing="empty", keep_blank=True
        )
        return [item.name for item in matched.items]

    def note(self) -> str:
        """Return a note about the references."""
        texts = [text for one in self.records for text in one.texts]
        pairs, asked = len({one.name for one in self.records}), len(self.names())
        said = f"{len(texts):,} references of {pairs:,} pairs"
        if blank := sum(not text.strip() for text in texts):
            said += f"; blank ones, {blank:,}, count"
        if asked < pairs:
            said += f"; {pairs - asked:,} pairs have none, and are not asked about"
        return f"{said}. CIDEr-D is what coco-caption, and papers after it, print as CIDEr"

    def mark(self, replies: benchmark.Replies) -> benchmark.Marked:
        """Return the scores of the answers: over all, by other protocols, and by group."""
        if not find_spec("pycocoevalcap"):  # needed for these scores alone
            return benchmark.Marked(marks=(), notes=(INSTALL,))
        first, *others = self.protocols
        marks: list[Measured] = []
        skipped: dict[str, str] = {}
        for category in ("", *others, *sorted({*self.groups.values()} - {""})):
            protocol = category if category in others else first
            counted = [one for one in self.records if one.name in replies.items]
            records = [
                one for one in counted if category in ("", *others, self.groups.get(one.name))
            ]
            if records:
                said = {one.name: replies.texts.get(one.name, "") for one in records}
                answers = [
                    Record(name, (text,), is_list=False, where="answers")
                    for name, text in said.items()
                ]
                matched = match_captions(answers, records, protocol=protocol, keep_blank=True)
                measured, skipped = measure_captions(matched, ScoringConfig())
                marks += [replace(one, category=category) for one in measured]
        return benchmark.Marked(
            marks=marks, notes=tuple(f"{name} was skipped: {why}" for name, why in skipped.items())
        )


def with_references(exam: benchmark.Exam, references: References) -> benchmark.Exam:
    """Return the exam with additional scores against references."""

    def mark(replies: benchmark.Replies) -> benchmark.Marked:
        first, second = exam.mark(replies), references.mark(replies)
        return replace(
            first, marks=[*first.marks, *second.marks], notes=(*first.notes, *second.notes)
        )

    return replace(exam, mark=mark, notes=(*exam.notes, references.note()))


def open_published(data: benchmark.Data, kind: str) -> benchmark.Exam:
    """Return a question per pair of the test split of a published layout."""
    require_installed()
    listed: dict[str, Mapping[str, Any]] = {}
    for name, place in data.entries(kind, TEST):
        if listed.setdefault(name, place) != place:
            raise ConfigError(f"--data {data.folder}: {TEST} has two pairs named {name!r}")
    refused = {name: place["refused"] for name, place in listed.items() if "refused" in place}
    references = _read_references(
        data, kind, {name: listed[name]["about"] for name in listed if name not in refused}
    )
    text, asked = (
        f"<image><image>{load_wordings(PROMPT).kinds[KIND][0].render()}",
        list[benchmark.ExamQuestion](),
    )
    for name in references.names():
        images = tuple(
            benchmark.find_image(data.folder, path, where=name)
            for path, *_ in listed[name]["images"]
        )
        asked.append(benchmark.ask_at_length(name, text, images, PROMPT))
    notes = [references.note(), NOTE]
    if refused:
        name, why = next(iter(refused.items()))
        notes.append(f"{len(refused):,} records of the split are refused, such as {name}: {why}")
    return benchmark.Exam(
        questions=asked, mark=references.mark, read_answers=False, notes=tuple(notes)
    )


def _read_references(
    data: benchmark.Data, kind: str, about: Mapping[str, Mapping[str, Any]]
) -> References:
    if kind == SPOT:
        held = read_captions(benchmark.find_file(data.folder, *SPOT_LISTS))
        records = [record for record in held if record.name in about]
        return References(records=records, protocols=SPOT_PROTOCOLS)
    texts = {name: tuple(one.get("human_differences", ())) for name, one in about.items()}
    records = [Record(name, own, is_list=True, where=name) for name, own in texts.items()]
    same = {name for name, one in about.items() if one.get("change_types") == [NO_CHANGE]}
    groups = {name: "no change" if name in same else "change" for name in about}
    return References(records=records, groups=groups if same else {})
