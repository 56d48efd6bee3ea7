"""Benchmarks on datasets of Pairwright (ours): rendered scenes with all objects known, and preferences.

Scenes: CHAIR (Rohrbach et al. 2018), without its gaps in annotation, on descriptions and
differences; and statements. Reads ``ImageRow`` with graphs, ``PairRow``, and ``PreferenceRow``:
training images are left out. Differences are asked for on the test split (``SplitRow``), and also
scored against written ones (``DifferenceRow``). Nouns are the rendered shapes and some synonyms
(``ALSO``, ours); denied ones ("but no mug") are left out.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any, Literal

import numpy as np

from pairwright.prompts import difference_verbs, load, load_wordings
from pairwright.schemas.claims import Claim, Graphs, Selector, holds
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import ImageRow, PairRow, PreferenceRow, make_key
from pairwright.schemas.scene import PLURALS, SceneGraph
from pairwright.tasks.evaluation.benchmark import Data, Exam, Marked, Replies, ask_at_length
from pairwright.tasks.evaluation.benchmarks.choices import (
    Choice,
    Units,
    exam_of,
    judge_statement,
    read_choice,
)
from pairwright.tasks.evaluation.benchmarks.described_pairs import (
    PROMPT,
    TEST,
    References,
    with_references,
)
from pairwright.tasks.evaluation.measured import Measured, measure_mean, measure_ratios
from pairwright.tasks.evaluation.read_captions import Record
from pairwright.tasks.scenes.read_phrases import read_phrases
from pairwright.tasks.texts.differences import Difference, read_composed
from pairwright.tasks.texts.words import affirmed, says_no_change

ALSO = {
    "sphere": "ball", "orb": "ball", "block": "cube", "torus": "ring", "hoop": "ring", "cup": "mug", "chest": "box",
    "automobile": "car", "duckling": "duck", "kettle": "teapot",
}  # fmt: skip
"""Synonyms of shapes, with regular plurals."""
SHAPES: dict[str, str] = {
    **{shape: shape for shape in PLURALS},
    **{plural: shape for shape, plural in PLURALS.items()},
    **ALSO,
    **{f"{word}s": shape for word, shape in ALSO.items()},
}
NOUN = re.compile(rf"\b({'|'.join(sorted(SHAPES, key=len, reverse=True))})\b", re.IGNORECASE)
SECOND = re.compile(r"\bsecond (?:image|picture|photo(?:graph)?|one)\b", re.IGNORECASE)
SIDES = ("first", "second")
CHAIR_RULE = (
    "Each noun of a rendered shape, or another word for it, is a mention, unless it is denied. CHAIR_i: mentions of "
    "shapes that are not in the photograph, of all mentions; CHAIR_s: descriptions with such a mention; recall: shapes "
    "in the photograph that are mentioned."
)
HALVES_RULE = (
    "The text before the first mention of the second image is about the first one, the rest about the second; without "
    "a mention, all of it is about both, and a thing may be in either. Things are found as in `scenes`. changed: "
    "shapes of things that only one photograph shows, in any size, and that the answer mentions. true: answers in the "
    "template (or that nothing has changed) all of whose statements hold, and do not all hold of the exchanged pair; "
    "true statements: of all that can be read; unreadable: answers without any."
)
TRUE, UNREADABLE = "true", "unreadable"
"""Shares of answers about pairs that are entirely true, and that have no readable statement."""
BOTH_NOTE = "both: pairs of statements of which the true one and the false one were judged rightly (chance: 25 %)"
PREFERENCES = "preferences"
MAX_ROWS = 1_000  # preferences whose images are in memory together
UNITS: Units = {"accuracy": lambda one: one.name, "both": lambda one: one.item}


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownScene:
    """Photograph or pair: images and their graphs."""

    key: str
    images: tuple[bytes, ...]
    graphs: tuple[SceneGraph, ...]


def _read_images(data: Data) -> dict[str, KnownScene]:
    rows: Iterable[ImageRow] = data.rows("images")
    found = {
        row.key: KnownScene(key=row.key, images=(row.image,), graphs=(row.graph,))
        for row in rows
        if row.graph
    }
    if not found:
        raise ConfigError(
            f"--data {data.folder}: its images have no scene graphs; build one with --profile scenes"
        )
    return found


def _rows_of(data: Data, table: str, without: tuple[str, ...] = ()) -> Iterator[Any]:
    """Yield the rows of a table; none where it does not exist."""
    with suppress(ConfigError):
        yield from data.rows(table, without=without)


def _trained_images(data: Data) -> frozenset[str]:
    rows: Iterable[PreferenceRow] = _rows_of(
        data, "preferences", without=("images", "rejected_images")
    )
    return frozenset(key for row in rows if row.split == "train" for key in row.image_keys)


def _held_out_pairs(data: Data) -> tuple[list[KnownScene], int]:
    """Return the pairs without training images, and the number of all pairs."""
    images, trained = _read_images(data), _trained_images(data)
    rows: Iterable[PairRow] = data.rows("pairs")
    pairs = sorted(rows, key=lambda row: row.key)
    known = images.keys() - trained
    kept = [
        (row.key, images[row.first], images[row.second])
        for row in pairs
        if {row.first, row.second} <= known
    ]
    return [
        KnownScene(key=key, images=a.images + b.images, graphs=a.graphs + b.graphs)
        for key, a, b in kept
    ], len(pairs)


def _note(kept: int, of: int, data: Data) -> str:
    if not kept:
        raise ConfigError(
            f"--data {data.folder}: all of its images are in the training split; name another dataset"
        )
    return f"{kept:,} of {of:,} are asked about: those whose images no preference of the training split shows"


def _exam(shown: Sequence[KnownScene], text: str, prompt: str, *, note: str, recall: str) -> Exam:
    """Return the exam of one description each: CHAIR, and as ``recall`` the share of expected shapes.

    Answers about pairs are also checked statement by statement against the scene graphs.
    """
    asked = [ask_at_length(one.key, text, one.images, prompt) for one in shown]

    def mark(replies: Replies) -> Marked:
        said = [
            (one.graphs, replies.texts.get(one.key, ""))
            for one in shown
            if one.key in replies.items
        ]
        counts = np.array([_count(*one) for one in said], np.float64).reshape(-1, 4)
        mentions, absent, named, wanted = counts.T
        marks = [measure_mean("CHAIR_s", np.array(absent > 0, np.float64))]
        marks.append(measure_ratios({"CHAIR_i": (absent, mentions), recall: (named, wanted)}))
        if any(len(one.graphs) > 1 for one in shown):
            checks = np.array(
                [_check_claims(text, (first, second)) for (first, second), text in said], np.float64
            )
            true, right, read = checks.reshape(-1, 3).T
            each = np.ones(len(read))
            ratios = {
                TRUE: (true, each),
                "true statements": (right, read),
                UNREADABLE: (np.equal(read, 0).astype(np.float64), each),
            }
            marks.append(measure_ratios(ratios))
        return Marked(marks=marks)

    return Exam(questions=asked, mark=mark, read_answers=False, notes=(note,))


def _count(graphs: tuple[SceneGraph, ...], text: str) -> tuple[int, int, int, int]:
    """Return numbers of mentions, false ones, expected shapes named, and expected ones."""
    halves = SECOND.split(text, maxsplit=1) if len(graphs) > 1 else [text]
    about = (
        [(halves[0], graphs[:1]), (halves[1], graphs[1:])] if len(halves) == 2 else [(text, graphs)]
    )
    found = [(shape, shown) for half, shown in about for shape in find_shapes(half)]
    absent = sum(
        all(shape != one.shape for graph in shown for one in graph.objects)
        for shape, shown in found
    )
    if len(graphs) == 1:
        wanted = {one.shape for one in graphs[0].objects}
    else:
        wanted = {one.shape for side in (0, 1) for one in _only_in(graphs[side], graphs[1 - side])}
    return len(found), absent, len(wanted & {shape for shape, _ in found}), len(wanted)


def find_shapes(text: str) -> list[str]:
    """Return the shape of each thing that a text states, in order, with repetitions."""
    return [SHAPES[match[1].lower()] for match in NOUN.finditer(affirmed(text))]


def _only_in(graph: SceneGraph, other: SceneGraph) -> list[Selector]:
    """Return the objects of a photograph that another lacks in any size."""
    looks = [
        Selector(shape=one.shape, colour=one.colour, material=one.material) for one in graph.objects
    ]
    return [one for one in looks if not one.select(other)]


def open_scenes(data: Data) -> Exam:
    """Return one question per photograph that was not trained on."""
    images, trained = _read_images(data), _trained_images(data)
    shown = [images[key] for key in sorted(images.keys() - trained)]
    text, note = f"<image>\n{load('describe_image').render()}", _note(len(shown), len(images), data)
    return _exam(shown, text, "describe_image", note=note, recall="recall")


def open_scene_differences(data: Data) -> Exam:
    """Return one question per pair of the test split, or per held-out pair without splits."""
    pairs, of = _held_out_pairs(data)
    note, splits = (
        _note(len(pairs), of, data),
        {row.subject: row.split for row in _rows_of(data, "splits")},
    )
    if splits:
        pairs = [pair for pair in pairs if splits.get(pair.key) == TEST]
        note = f"{len(pairs):,} of {of:,} are asked about: those of the test split"
        if not pairs:
            raise ConfigError(
                f"--data {data.folder}: no pair is in the test split: set preferences.test_share"
            )
    text = f"<image><image>{load_wordings(PROMPT).kinds['ask'][0].render()}"
    exam = _exam(pairs, text, PROMPT, note=note, recall="changed")
    written: dict[str, list[str]] = {pair.key: [] for pair in pairs}
    for row in _rows_of(data, "differences"):
        written.get(row.subject, []).append(row.text)
    records = [
        Record(key, tuple(texts), is_list=True, where=key)
        for key, texts in written.items()
        if texts
    ]
    return with_references(exam, References(records=records)) if records else exam


def _check_claims(text: str, graphs: Graphs) -> tuple[bool, int, int]:
    """Return whether an answer is true and specific to the order, its true statements, and readable ones."""
    unchanged = tuple(
        wording.text for wording in load_wordings("answer_sentences").kinds["unchanged"]
    )
    same = text.lower().startswith(unchanged) or says_no_change(text)
    claims, read = [Claim(side=0, kind="no_change")] * same, read_composed(text, difference_verbs())
    if isinstance(read, Difference) and (read.verbs or same):
        claims += read_phrases(
            read.first_half, read.second_half if read.verbs else read.first_half
        ).claims
    own = [holds(claim, graphs) for claim in claims]
    tells = same or not all(holds(claim, (graphs[1], graphs[0])) for claim in claims)
    return bool(own) and all(own) and tells, sum(own), len(own)


def open_scene_pairs(data: Data) -> Exam:
    """Return a true and a false statement about each held-out pair."""
    pairs, of = _held_out_pairs(data)
    choices = [choice for pair in pairs for choice in _make_statements(pair)]
    return exam_of(choices, UNITS, notes=(_note(len(choices) // 2, of, data), BOTH_NOTE))


def _make_statements(pair: KnownScene) -> Iterator[Choice]:
    only = [
        (side, thing)
        for side in (0, 1)
        for thing in _only_in(pair.graphs[side], pair.graphs[1 - side])
    ]
    if not only:
        return
    side, thing = only[int(make_key("statement", pair.key)[:8], 16) % len(only)]
    words = " ".join(filter(None, (thing.size, thing.colour, thing.material, thing.shape)))
    for place, answer in ((side, "True"), (1 - side, "False")):
        said = f"The {SIDES[place]} image shows a {words}, and the {SIDES[1 - place]} image shows none."
        name, prompt = f"{pair.key}_{answer}", "judge_pair_statement"
        yield judge_statement(name, pair.images, said, answer=answer, prompt=prompt, item=pair.key)


def open_preferences(data: Data) -> Exam:
    """Return two questions for each of a dataset's preferences about two images; the model is the judge.

    A rejected text judged true may be no negative. Complements the report's checks by claims, for
    texts without claims. If there are many, those with the first keys are asked about, a random
    sample.
    """
    held: Iterator[PreferenceRow] = data.rows("preferences", without=("rejected_images",))
    both = (row for row in held if len(row.images) == 2 and row.chosen and row.rejected)
    rows = nsmallest(MAX_ROWS, both, key=lambda row: row.key)
    if not rows:
        raise ConfigError(
            f"--data {data.folder}: has no preferences about two images with two texts"
        )
    asked = [(row, _ask_side(row, "chosen"), _ask_side(row, "rejected")) for row in rows]

    def mark(replies: Replies) -> Marked:
        choices = [choice for _, *own in asked for choice in own]
        read = {one.name: read_choice(replies.texts.get(one.name, ""), one) for one in choices}
        said = [
            (row.rejected_maker, read[a.name], read[b.name])
            for row, a, b in asked
            if row.key in replies.items
        ]
        taken = {name: option for name, option in read.items() if option}
        return Marked(marks=list(_mark_preferences(said)), taken=taken)

    notes = (
        "told apart: the chosen text was judged true, and the rejected one false (chance: 25 %)",
    )
    return Exam(questions=[choice for _, *own in asked for choice in own], mark=mark, notes=notes)


def _ask_side(row: PreferenceRow, side: Literal["chosen", "rejected"]) -> Choice:
    name, text, answer = f"{row.key}_{side}", getattr(row, side), str(side == "chosen")
    return judge_statement(
        name, row.images, text, answer=answer, prompt="judge_pair_statement", item=row.key
    )


def _mark_preferences(said: Sequence[tuple[str, str | None, str | None]]) -> Iterator[Measured]:
    def believed(texts: Sequence[str | None]) -> tuple[list[float], list[float]]:
        return [text == "True" for text in texts], [text is not None for text in texts]

    chosen, rejected = [one for _, one, _ in said], [one for _, _, one in said]
    yield measure_ratios(
        {"chosen taken for true": believed(chosen), "rejected taken for true": believed(rejected)}
    )
    yield measure_mean("told apart", [texts == ["True", "False"] for _, *texts in said])
    for maker in sorted({maker for maker, _, _ in said}):
        own = [text for other, _, text in said if other == maker]
        yield measure_ratios({"rejected taken for true": believed(own)}, category=maker)
