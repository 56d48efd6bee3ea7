"""Benchmarks on datasets of Pairwright (ours): rendered scenes, and preferences.

All objects of scenes are known. They have CHAIR (Rohrbach et al. 2018), without its gaps in
annotation, on descriptions and differences; and statements. Reads ``ImageRow`` with graphs,
``PairRow``, and ``PreferenceRow``: training images are left out. Differences are asked for on the
test split (``SplitRow``), and also scored against written ones (``DifferenceRow``). Nouns are the
rendered shapes and some synonyms (``ALSO``, ours); denied ones ("but no mug") are left out.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any, Literal, NamedTuple

import numpy as np

from pairwright.prompts import load_prompt, load_wordings
from pairwright.schemas.claims import Claim, Graphs, Selector, is_true_claim
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import ImageRow, PairRow, PreferenceRow, make_key
from pairwright.schemas.scene import PLURALS, SceneGraph
from pairwright.tasks.evaluation.benchmark import (
    Data,
    Exam,
    ExamQuestion,
    Marked,
    Replies,
    ask_at_length,
)
from pairwright.tasks.evaluation.benchmarks.choices import (
    Choice,
    Units,
    exam_of,
    judge_statement,
    read_choice,
)
from pairwright.tasks.evaluation.benchmarks.described_pairs import (
    KIND,
    PROMPT,
    TEST,
    References,
    with_references,
)
from pairwright.tasks.evaluation.measured import Measured, measure_mean, measure_ratios
from pairwright.tasks.evaluation.read_captions import Record
from pairwright.tasks.evaluation.score_captions import require_installed
from pairwright.tasks.scenes.read_claims import read_claims
from pairwright.tasks.texts.words import affirmed, says_no_change

ALSO = {
    "sphere": "ball",
    "orb": "ball",
    "block": "cube",
    "torus": "ring",
    "hoop": "ring",
    "cup": "mug",
    "chest": "box",
    "automobile": "car",
    "duckling": "duck",
    "kettle": "teapot",
}
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
    "Each noun of a rendered shape, or another word for it, is a mention, unless it is denied. "
    "CHAIR_i: mentions of shapes that are not in the photograph, of all mentions; CHAIR_s: "
    "descriptions with such a mention; recall: shapes in the photograph that are mentioned."
)
HALVES_RULE = (
    "The text before the first mention of the second image is about the first one, the rest about "
    "the second; without a mention, all of it is about both, and a thing may be in either. Things "
    "are found as in `scenes`. changed: shapes of things that only one photograph shows, in any "
    "size, and that the answer mentions. true: answers in the template (or that nothing has "
    "changed) all of whose statements hold, and do not all hold of the exchanged pair; true "
    "statements: of all that can be read; unreadable: answers without any."
)
TRUE = "true"
"""Share of answers about pairs that are entirely true."""
UNREADABLE = "unreadable"
"""Share of answers about pairs without a readable statement."""
BOTH_NOTE = (
    "both: pairs of statements of which the true one and the false one were judged rightly "
    "(chance: 25 %)"
)
PREFERENCES = "preferences"
MAX_ROWS = 1_000  # preferences whose images are in memory together
UNITS: Units = {"accuracy": lambda choice: choice.name, "both": lambda choice: choice.item}


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownScene:
    """Photograph or pair: images and their graphs."""

    key: str
    images: tuple[bytes, ...]
    graphs: tuple[SceneGraph, ...]


def _read_images(data: Data) -> dict[str, KnownScene]:
    rows: Iterable[ImageRow] = data.rows("images")
    scenes: dict[str, KnownScene] = {}
    for row in rows:
        if row.graph:
            scenes[row.key] = KnownScene(
                key=row.key,
                images=(row.image,),
                graphs=(row.graph,),
            )
    if not scenes:
        raise ConfigError(
            f"--data {data.folder}: its images have no scene graphs; "
            "build one with --profile scenes"
        )
    return scenes


def _rows_of(
    data: Data,
    table: str,
    without: tuple[str, ...] = (),
) -> Iterator[Any]:
    """Yield the rows of a table; none where it does not exist."""
    with suppress(ConfigError):
        yield from data.rows(table, without=without)


def _trained_images(data: Data) -> frozenset[str]:
    """Return the keys of the training split's images."""
    images: set[str] = set()
    rows: Iterable[PreferenceRow] = _rows_of(
        data, "preferences", without=("images", "rejected_images")
    )
    for row in rows:
        if row.split == "train":
            images.update(row.image_keys)
    return frozenset(images)


def _held_out_pairs(data: Data) -> tuple[list[KnownScene], int]:
    """Return the pairs without training images, and the number of all pairs."""
    images = _read_images(data)
    held_out = images.keys() - _trained_images(data)
    rows: Iterable[PairRow] = data.rows("pairs")
    pairs = sorted(rows, key=lambda row: row.key)
    scenes: list[KnownScene] = []
    for row in pairs:
        if {row.first, row.second} <= held_out:
            first = images[row.first]
            second = images[row.second]
            scene = KnownScene(
                key=row.key,
                images=first.images + second.images,
                graphs=first.graphs + second.graphs,
            )
            scenes.append(scene)
    return scenes, len(pairs)


def _note(count: int, total: int, data: Data) -> str:
    if not count:
        raise ConfigError(
            f"--data {data.folder}: all of its images are in the training split; "
            "name another dataset"
        )
    return (
        f"{count:,} of {total:,} are asked about: "
        "those whose images no preference of the training split shows"
    )


def _exam(
    scenes: Sequence[KnownScene],
    text: str,
    prompt: str,
    *,
    note: str,
    recall: str,
) -> Exam:
    """Return the exam of one description each: CHAIR, and the share of expected shapes.

    The latter is called ``recall``. Answers about pairs are also checked statement by statement
    against the scene graphs.
    """
    questions = [ask_at_length(scene.key, text, scene.images, prompt) for scene in scenes]
    has_pairs = any(len(scene.graphs) > 1 for scene in scenes)

    def mark(replies: Replies) -> Marked:
        answers: list[SceneAnswer] = []
        for scene in scenes:
            if scene.key in replies.items:
                answers.append(SceneAnswer(scene.graphs, replies.texts.get(scene.key, "")))
        marks = _mark_shapes(answers, recall)
        if has_pairs:
            marks.append(_mark_claims(answers))
        return Marked(marks=marks)

    return Exam(
        questions=questions,
        mark=mark,
        read_answers=False,
        notes=(note,),
    )


class SceneAnswer(NamedTuple):
    """Answer about a photograph or pair with scene graphs."""

    graphs: tuple[SceneGraph, ...]
    text: str


def _mark_shapes(answers: Sequence[SceneAnswer], recall: str) -> list[Measured]:
    """Return CHAIR_s, CHAIR_i and the recall under its name."""
    rows = [_count_shapes(answer) for answer in answers]
    counts = np.array(rows, np.float64).reshape(-1, 4)
    mentions, absent, named, expected = counts.T
    return [
        measure_mean("CHAIR_s", np.array(absent > 0, np.float64)),
        measure_ratios({"CHAIR_i": (absent, mentions), recall: (named, expected)}),
    ]


def _mark_claims(answers: Sequence[SceneAnswer]) -> Measured:
    """Return the shares of true answers, true statements, and unreadable answers."""
    rows: list[tuple[bool, int, int]] = []
    for answer in answers:
        first, second = answer.graphs
        rows.append(_check_claims(answer.text, (first, second)))
    checks = np.array(rows, np.float64)
    true, right, read = checks.reshape(-1, 3).T
    each = np.ones(len(read))
    ratios = {
        TRUE: (true, each),
        "true statements": (right, read),
        UNREADABLE: (np.equal(read, 0).astype(np.float64), each),
    }
    return measure_ratios(ratios)


def _count_shapes(answer: SceneAnswer) -> tuple[int, int, int, int]:
    """Return numbers of mentions, false ones, expected shapes named, and expected ones."""
    mentions = 0
    absent = 0
    named: set[str] = set()
    for text, graphs in _split_halves(answer):
        shapes = find_shapes(text)
        present = _shapes_in(graphs)
        mentions += len(shapes)
        absent += sum(shape not in present for shape in shapes)
        named.update(shapes)
    expected = _expected_shapes(answer.graphs)
    return mentions, absent, len(expected & named), len(expected)


def _split_halves(answer: SceneAnswer) -> list[tuple[str, tuple[SceneGraph, ...]]]:
    """Return each part of an answer with the photographs that it is about."""
    graphs = answer.graphs
    if len(graphs) > 1:
        halves = SECOND.split(answer.text, maxsplit=1)
        if len(halves) == 2:
            return [(halves[0], graphs[:1]), (halves[1], graphs[1:])]
    return [(answer.text, graphs)]


def _shapes_in(graphs: Sequence[SceneGraph]) -> set[str]:
    shapes: set[str] = set()
    for graph in graphs:
        shapes.update(item.shape for item in graph.objects)
    return shapes


def _expected_shapes(graphs: tuple[SceneGraph, ...]) -> set[str]:
    """Return the shapes of a photograph, or those that only one of two photographs shows."""
    if len(graphs) == 1:
        return _shapes_in(graphs)
    first, second = graphs[0], graphs[1]
    selectors = [*_only_in(first, second), *_only_in(second, first)]
    return {selector.shape for selector in selectors if selector.shape is not None}


def find_shapes(text: str) -> list[str]:
    """Return the shape of each thing that a text states, in order, with repetitions."""
    return [SHAPES[match[1].lower()] for match in NOUN.finditer(affirmed(text))]


def _only_in(graph: SceneGraph, other: SceneGraph) -> list[Selector]:
    """Return the objects of a photograph that another lacks in any size."""
    selectors: list[Selector] = []
    for item in graph.objects:
        selector = Selector(
            shape=item.shape,
            colour=item.colour,
            material=item.material,
        )
        if not selector.select(other):
            selectors.append(selector)
    return selectors


def open_scenes(data: Data) -> Exam:
    """Return one question per photograph that was not trained on."""
    images = _read_images(data)
    held_out = sorted(images.keys() - _trained_images(data))
    scenes = [images[key] for key in held_out]
    prompt = "describe_image"
    text = f"<image>\n{load_prompt(prompt).render()}"
    note = _note(len(scenes), len(images), data)
    return _exam(scenes, text, prompt, note=note, recall="recall")


def open_scene_differences(data: Data) -> Exam:
    """Return one question per pair of the test split, or per held-out pair without splits."""
    pairs, total = _held_out_pairs(data)
    note = _note(len(pairs), total, data)
    splits = {row.subject: row.split for row in _rows_of(data, "splits")}
    if splits:
        pairs = [pair for pair in pairs if splits.get(pair.key) == TEST]
        note = f"{len(pairs):,} of {total:,} are asked about: those of the test split"
        if not pairs:
            raise ConfigError(
                f"--data {data.folder}: no pair is in the test split: set preferences.test_share"
            )
    wording = load_wordings(PROMPT).kinds["ask"][0].render()
    exam = _exam(pairs, f"<image><image>{wording}", PROMPT, note=note, recall="changed")
    records = _read_differences(data, pairs)
    if not records:
        return exam
    return with_references(exam, References(records=records))


def _read_differences(data: Data, pairs: Sequence[KnownScene]) -> list[Record]:
    """Return the dataset's own differences of some pairs."""
    texts_by_pair: dict[str, list[str]] = {pair.key: [] for pair in pairs}
    for row in _rows_of(data, "differences"):
        if row.subject in texts_by_pair:
            texts_by_pair[row.subject].append(row.text)
    records: list[Record] = []
    for key, texts in texts_by_pair.items():
        if texts:
            records.append(
                Record(
                    key,
                    tuple(texts),
                    is_list=True,
                    where=key,
                )
            )
    return records


def open_own(data: Data) -> Exam:
    """Return one question per pair of the test split that people described.

    The references are their texts: those of ``PairRow``, of any source.
    """
    require_installed()
    splits = {row.subject: row.split for row in data.rows("splits")}
    described: list[PairRow] = []
    rows: Iterable[PairRow] = data.rows("pairs")
    for row in rows:
        if row.human_differences and splits.get(row.key) == TEST:
            described.append(row)
    if not described:
        raise ConfigError(
            f"--data {data.folder}: no pair of its test split has a text that people wrote: "
            "set preferences.test_share, and build from a source with such texts"
        )
    described.sort(key=lambda row: row.key)
    keys = {key for row in described for key in (row.first, row.second)}
    images = {row.key: row.image for row in data.rows("images") if row.key in keys}
    wording = load_wordings(PROMPT).kinds[KIND][0].render()
    questions: list[ExamQuestion] = []
    records: list[Record] = []
    for row in described:
        both = (images[row.first], images[row.second])
        questions.append(ask_at_length(row.key, f"<image><image>{wording}", both, PROMPT))
        records.append(Record(row.key, row.human_differences, is_list=True, where=row.key))
    references = References(records=records)
    note = references.note()
    return Exam(questions=questions, mark=references.mark, read_answers=False, notes=(note,))


def _check_claims(text: str, graphs: Graphs) -> tuple[bool, int, int]:
    """Return whether an answer is true, its number of true statements, and of readable ones.

    A true answer is specific to the order of the images.
    """
    claims: Sequence[Claim] = read_claims(text, _shapes_in(graphs)).claims
    if says_no_change(text.split(". ")[0]):  # in any words
        claims = [Claim(side=0, kind="no_change"), *claims]
    claims = list(dict.fromkeys(claims))
    verdicts = [is_true_claim(claim, graphs) for claim in claims]
    is_unchanged = any(claim.kind == "no_change" for claim in claims)
    exchanged = (graphs[1], graphs[0])
    is_specific = is_unchanged or not all(is_true_claim(claim, exchanged) for claim in claims)
    is_true = bool(verdicts) and all(verdicts) and is_specific
    return is_true, sum(verdicts), len(verdicts)


def open_scene_pairs(data: Data) -> Exam:
    """Return a true and a false statement about each held-out pair."""
    pairs, total = _held_out_pairs(data)
    choices: list[Choice] = []
    for pair in pairs:
        choices += _make_statements(pair)
    note = _note(len(choices) // 2, total, data)
    return exam_of(choices, UNITS, notes=(note, BOTH_NOTE))


def _make_statements(pair: KnownScene) -> Iterator[Choice]:
    first, second = pair.graphs
    candidates = [(0, selector) for selector in _only_in(first, second)]
    candidates += [(1, selector) for selector in _only_in(second, first)]
    if not candidates:
        return
    hashed = int(make_key("statement", pair.key)[:8], 16)
    side, selector = candidates[hashed % len(candidates)]
    adjectives = (selector.size, selector.colour, selector.material, selector.shape)
    noun = " ".join(filter(None, adjectives))
    for with_it, without, answer in (
        (SIDES[side], SIDES[1 - side], "True"),
        (SIDES[1 - side], SIDES[side], "False"),
    ):
        yield judge_statement(
            f"{pair.key}_{answer}",
            pair.images,
            f"The {with_it} image shows a {noun}, and the {without} image shows none.",
            answer=answer,
            prompt="judge_pair_statement",
            item=pair.key,
        )


class Verdicts(NamedTuple):
    """Options chosen for both texts of a preference; ``None``: unreadable."""

    maker: str
    chosen: str | None
    rejected: str | None


def open_preferences(data: Data) -> Exam:
    """Return two questions for each of a dataset's preferences about two images.

    The model is the judge. A rejected text judged true may be no negative. Complements the report's
    checks by claims, for texts without claims. If there are many, those with the first keys are
    asked about, a random sample.
    """
    preferences: Iterator[PreferenceRow] = data.rows("preferences", without=("rejected_images",))
    complete = (row for row in preferences if len(row.images) == 2 and row.chosen and row.rejected)
    rows = nsmallest(MAX_ROWS, complete, key=lambda row: row.key)
    if not rows:
        raise ConfigError(
            f"--data {data.folder}: has no preferences about two images with two texts"
        )
    pairs = [(row, _ask_side(row, "chosen"), _ask_side(row, "rejected")) for row in rows]
    questions: list[Choice] = []
    for _, chosen, rejected in pairs:
        questions += (chosen, rejected)

    def mark(replies: Replies) -> Marked:
        options: dict[str, str] = {}
        for question in questions:
            option = read_choice(replies.texts.get(question.name, ""), question)
            if option:
                options[question.name] = option
        verdicts: list[Verdicts] = []
        for row, chosen, rejected in pairs:
            if row.key in replies.items:
                verdicts.append(
                    Verdicts(
                        row.rejected_maker, options.get(chosen.name), options.get(rejected.name)
                    )
                )
        return Marked(marks=list(_mark_preferences(verdicts)), taken=options)

    note = "told apart: the chosen text was judged true, and the rejected one false (chance: 25 %)"
    return Exam(questions=questions, mark=mark, notes=(note,))


def _ask_side(row: PreferenceRow, side: Literal["chosen", "rejected"]) -> Choice:
    return judge_statement(
        f"{row.key}_{side}",
        row.images,
        getattr(row, side),
        answer=str(side == "chosen"),
        prompt="judge_pair_statement",
        item=row.key,
    )


def _mark_preferences(verdicts: Sequence[Verdicts]) -> Iterator[Measured]:
    chosen = [verdict.chosen for verdict in verdicts]
    rejected = [verdict.rejected for verdict in verdicts]
    yield measure_ratios(
        {
            "chosen taken for true": _count_believed(chosen),
            "rejected taken for true": _count_believed(rejected),
        }
    )
    apart = [verdict.chosen == "True" and verdict.rejected == "False" for verdict in verdicts]
    yield measure_mean("told apart", apart)
    for maker in sorted({verdict.maker for verdict in verdicts}):
        options = [verdict.rejected for verdict in verdicts if verdict.maker == maker]
        yield measure_ratios({"rejected taken for true": _count_believed(options)}, category=maker)


def _count_believed(options: Sequence[str | None]) -> tuple[list[float], list[float]]:
    """Return for each text whether it was judged true, and whether it was judged."""
    believed = [float(option == "True") for option in options]
    judged = [float(option is not None) for option in options]
    return believed, judged
