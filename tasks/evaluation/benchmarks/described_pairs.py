"""Descriptions of differences against human references, on the papers' test splits.

Spot-the-Diff, CLEVR-Change, CLEVR-DC and Image-Editing-Request, in the layouts of the sources of
these names. The model is asked once per pair, all of whose texts are references; texts are compared
in lower case without punctuation, as by coco-caption. Needs pycocoevalcap; METEOR and SPICE need
Java, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
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
PROMPT = "ask_difference"
KIND = "given"  # kind of the prompt's wordings; the first one is used
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
    # The first protocol scores all items; each other one is a category.
    protocols: tuple[str, ...] = ("coco",)
    # Categories of items, scored separately, too.
    groups: Mapping[str, str] = field(default_factory=dict[str, str])

    def item_names(self) -> list[str]:
        """Return the names of the items with references."""
        matched = match_captions(
            [],
            self.records,
            protocol=self.protocols[0],
            missing="empty",
            keep_blank=True,
        )
        return [item.name for item in matched.items]

    def note(self) -> str:
        """Return a note about the references."""
        texts: list[str] = []
        for record in self.records:
            texts += record.texts
        pairs = len({record.name for record in self.records})
        items = len(self.item_names())
        blank = sum(not text.strip() for text in texts)
        parts = [f"{len(texts):,} references of {pairs:,} pairs"]
        if blank:
            parts.append(f"blank ones, {blank:,}, count")
        if items < pairs:
            parts.append(f"{pairs - items:,} pairs have none, and are not asked about")
        note = "; ".join(parts)
        return f"{note}. CIDEr-D is what coco-caption, and papers after it, print as CIDEr"

    def mark(self, replies: benchmark.Replies) -> benchmark.Marked:
        """Return the scores of the answers: over all, by other protocols, and by group."""
        if not find_spec("pycocoevalcap"):  # needed for these scores alone
            return benchmark.Marked(marks=(), notes=(INSTALL,))
        first, *others = self.protocols
        groups = sorted({*self.groups.values()} - {""})
        marks: list[Measured] = []
        skipped: dict[str, str] = {}
        for category in ("", *others, *groups):
            records = self._select(category, replies)
            if records:
                protocol = category if category in others else first
                measured, skipped = _compare(records, replies, protocol)
                marks += [replace(measurement, category=category) for measurement in measured]
        notes = [f"{name} was skipped: {why}" for name, why in skipped.items()]
        return benchmark.Marked(marks=marks, notes=tuple(notes))

    def _select(self, category: str, replies: benchmark.Replies) -> list[Record]:
        """Return the records of a category whose items count."""
        counted = [record for record in self.records if record.name in replies.items]
        if category in ("", *self.protocols[1:]):
            return counted
        return [record for record in counted if self.groups.get(record.name) == category]


def _compare(
    records: Sequence[Record], replies: benchmark.Replies, protocol: str
) -> tuple[list[Measured], dict[str, str]]:
    """Return the measurements of the answers, and skipped metrics with reasons."""
    answers: list[Record] = []
    for name in dict.fromkeys(record.name for record in records):
        text = replies.texts.get(name, "")  # empty without an answer
        answers.append(
            Record(
                name,
                (text,),
                is_list=False,
                where="answers",
            )
        )
    matched = match_captions(answers, records, protocol=protocol, keep_blank=True)
    return measure_captions(matched, ScoringConfig())


def with_references(exam: benchmark.Exam, references: References) -> benchmark.Exam:
    """Return the exam with additional scores against references."""

    def mark(replies: benchmark.Replies) -> benchmark.Marked:
        marked = exam.mark(replies)
        compared = references.mark(replies)
        return replace(
            marked,
            marks=[*marked.marks, *compared.marks],
            notes=(*marked.notes, *compared.notes),
        )

    return replace(
        exam,
        mark=mark,
        notes=(*exam.notes, references.note()),
    )


def open_published(data: benchmark.Data, kind: str) -> benchmark.Exam:
    """Return a question per pair of the test split of a published layout."""
    require_installed()
    entries = _list_entries(data, kind)
    refused: dict[str, str] = {}
    facts: dict[str, Mapping[str, Any]] = {}
    for name, locator in entries.items():
        if "refused" in locator:
            refused[name] = locator["refused"]
        else:
            facts[name] = locator["about"]
    references = _read_references(data, kind, facts)
    questions = [_ask_entry(data, name, entries[name]) for name in references.item_names()]
    notes = [references.note(), NOTE]
    if refused:
        name, why = next(iter(refused.items()))
        notes.append(f"{len(refused):,} records of the split are refused, such as {name}: {why}")
    return benchmark.Exam(
        questions=questions, mark=references.mark, read_answers=False, notes=tuple(notes)
    )


def ask_pair(name: str, images: tuple[Path | bytes, ...], **kwargs: Any) -> benchmark.ExamQuestion:
    """Return a question about two images that a training on people's texts asks, too."""
    wording = load_wordings(PROMPT).kinds[KIND][0].render()
    return benchmark.ask_at_length(name, f"<image><image>{wording}", images, PROMPT, **kwargs)


def _ask_entry(
    data: benchmark.Data, name: str, locator: Mapping[str, Any]
) -> benchmark.ExamQuestion:
    images = [benchmark.find_image(data.folder, path, where=name) for path, *_ in locator["images"]]
    return ask_pair(name, tuple(images))


def _list_entries(data: benchmark.Data, kind: str) -> dict[str, Mapping[str, Any]]:
    """Return the locators of the test split's pairs by name."""
    entries: dict[str, Mapping[str, Any]] = {}
    for name, locator in data.entries(kind, TEST):
        if entries.setdefault(name, locator) != locator:
            raise ConfigError(f"--data {data.folder}: {TEST} has two pairs named {name!r}")
    return entries


def _read_references(
    data: benchmark.Data,
    kind: str,
    facts: Mapping[str, Mapping[str, Any]],
) -> References:
    if kind == SPOT:
        path = benchmark.find_file(data.folder, *SPOT_LISTS)
        records = [record for record in read_captions(path) if record.name in facts]
        return References(records=records, protocols=SPOT_PROTOCOLS)
    records: list[Record] = []
    groups: dict[str, str] = {}
    for name, entry in facts.items():
        texts = tuple(entry.get("human_differences", ()))
        records.append(Record(name, texts, is_list=True, where=name))
        is_same = entry.get("change_types") == [NO_CHANGE]
        groups[name] = "no change" if is_same else "change"
    if "no change" not in groups.values():
        groups = {}
    return References(records=records, groups=groups)
