"""Descriptions of differences against what people wrote, on the test splits that papers report.

Spot-the-Diff, CLEVR-Change, CLEVR-DC and Image-Editing-Request, in the layouts that the sources of these names read.
The model is asked once about each pair. All texts of a pair are its references; texts are compared in lower case and
without punctuation, as by coco-caption. Needs pycocoevalcap; METEOR and SPICE need Java, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pairwright.prompts import load_wordings
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.benchmark import (
    Benchmark,
    Data,
    Exam,
    ExamQuestion,
    Marked,
    Replies,
    ask_at_length,
    find_file,
    find_image,
)
from pairwright.tasks.evaluation.measured import Measured
from pairwright.tasks.evaluation.read_captions import Record, match_captions, read_captions
from pairwright.tasks.evaluation.score_captions import INSTALL, ScoringConfig, is_installed, measure_captions

TEST = "test"
PROMPT, KIND = "ask_difference", "given"
"""The question's prompt file, and the kind of its wordings that asks for what people write; the first is taken."""
NO_CHANGE = "no_change"
SPOT = "spot-the-diff"
SPOT_LISTS = tuple(f"{folder}{TEST}.json" for folder in ("annotations/", "data/annotations/", ""))
SPOT_PROTOCOLS = (SPOT, "spot-the-diff-records", "spot-the-diff-multi")
RULE = "The answer is scored against the references of its pair, as by `pairwright evaluate captions`."
NOTE = "what the model is asked is ours, as the papers' questions are not public"


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """Texts that answers are scored against; a record's name is that of the question."""

    records: Sequence[Record]
    """An item may have several."""
    blank: str
    """What becomes of blank ones."""
    protocols: tuple[str, ...] = ("coco",)
    """The first gives the scores over all; each other one is a category."""
    groups: Mapping[str, str] = field(default_factory=dict[str, str])
    """Categories of items, each of which is scored by itself, too."""

    def names(self) -> list[str]:
        """Return the names of the items that have a reference."""
        matched = match_captions([], self.records, protocol=self.protocols[0], missing="empty", blank=self.blank)
        return [item.name for item in matched.items]

    def note(self) -> str:
        """Say what is scored against."""
        texts = [text for one in self.records for text in one.texts]
        pairs, asked = len({one.name for one in self.records}), len(self.names())
        said = f"{len(texts):,} references of {pairs:,} pairs"
        if blank := sum(not text.strip() for text in texts):
            said += f"; blank ones, {blank:,}, {'count' if self.blank == 'keep' else 'do not'} (--blank {self.blank})"
        if asked < pairs:
            said += f"; {pairs - asked:,} pairs have none, and are not asked about"
        return f"{said}. CIDEr-D is what coco-caption, and papers after it, print as CIDEr"

    def mark(self, replies: Replies) -> Marked:
        """Return the scores of the answers: over all, by the other protocols, and of each group."""
        if not is_installed():
            return Marked(marks=(), notes=(INSTALL,))
        first, *others = self.protocols
        marks: list[Measured] = []
        skipped: dict[str, str] = {}
        for category in ("", *others, *sorted({*self.groups.values()} - {""})):
            protocol = category if category in others else first
            counted = [one for one in self.records if one.name in replies.items]
            records = [one for one in counted if category in ("", *others, self.groups.get(one.name))]
            if records:
                said = {one.name: replies.texts.get(one.name, "") for one in records}
                answers = [Record(name, (text,), is_list=False, where="answers") for name, text in said.items()]
                matched = match_captions(answers, records, protocol=protocol, blank=self.blank)
                measured, skipped = measure_captions(matched, ScoringConfig())
                marks += [replace(one, category=category) for one in measured]
        return Marked(marks=marks, notes=tuple(f"{name} was skipped: {why}" for name, why in skipped.items()))


def with_references(exam: Exam, references: References) -> Exam:
    """Return the exam whose answers are scored against references, too."""

    def mark(replies: Replies) -> Marked:
        first, second = exam.mark(replies), references.mark(replies)
        return replace(first, marks=[*first.marks, *second.marks], notes=(*first.notes, *second.notes))

    return replace(exam, mark=mark, notes=(*exam.notes, references.note()))


def _open(data: Data, kind: str) -> Exam:
    """Return one question for each pair of a source's test split that has references."""
    if not is_installed():
        raise ConfigError(INSTALL)
    listed: dict[str, Mapping[str, Any]] = {}
    for name, place in data.entries(kind, TEST):
        if listed.setdefault(name, place) != place:
            raise ConfigError(f"--data {data.folder}: {TEST} has two pairs of the name {name!r}")
    refused = {name: place["refused"] for name, place in listed.items() if "refused" in place}
    references = _read_references(data, kind, {name: listed[name]["about"] for name in listed if name not in refused})
    text, asked = f"<image><image>{load_wordings(PROMPT).kinds[KIND][0].render()}", list[ExamQuestion]()
    for name in references.names():
        images = tuple(find_image(data.folder, path, where=name) for path, *_ in listed[name]["images"])
        asked.append(ask_at_length(name, text, images, PROMPT))
    notes = [references.note(), NOTE]
    if refused:
        name, why = next(iter(refused.items()))
        notes.append(f"{len(refused):,} records of the split are refused, such as {name}: {why}")
    return Exam(questions=asked, mark=references.mark, read_answers=False, notes=tuple(notes))


def _read_references(data: Data, kind: str, about: Mapping[str, Mapping[str, Any]]) -> References:
    if kind == SPOT:
        held = read_captions(find_file(data.folder, *SPOT_LISTS))
        records = [record for record in held if record.name in about]
        return References(records=records, blank=data.blank, protocols=SPOT_PROTOCOLS)
    texts = {name: tuple(one.get("human_differences", ())) for name, one in about.items()}
    records = [Record(name, own, is_list=True, where=name) for name, own in texts.items()]
    same = {name for name, one in about.items() if one.get("change_types") == [NO_CHANGE]}
    groups = {name: "no change" if name in same else "change" for name in about}
    return References(records=records, blank=data.blank, groups=groups if same else {})


BENCHMARKS = tuple(
    Benchmark(
        name=kind,
        measures=f"how near a description of what differs comes to what people wrote: {what}",
        layout=f"the published layout (`pairwright sources {kind}`), whose test split is asked about",
        open=partial(_open, kind=kind),
        rule=RULE,
    )
    for kind, what in {
        SPOT: "frames of surveillance cameras, by the three protocols that papers use",
        "clevr-change": "rendered scenes, with a change and without",
        "clevr-dc": "rendered scenes from far viewpoints",
        "image-editing-request": "edited photographs, and the requests",
    }.items()
)
