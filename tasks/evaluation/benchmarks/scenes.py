"""Rendered scenes with all objects known: CHAIR on descriptions and differences, and statements (ours).

After CHAIR (Rohrbach et al. 2018), without its gaps in annotation. Reads ``ImageRow`` with graphs, ``PairRow``, and
``PreferenceRow``: training images are left out. Differences are asked for on the test split (``SplitRow``), and also
scored against written ones (``DifferenceRow``). Nouns are the rendered shapes and some synonyms (``ALSO``, ours);
denied ones ("but no mug") are left out.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pairwright.prompts import difference_verbs, load, load_wordings
from pairwright.schemas.claims import Claim, Graphs, Selector, holds
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import ImageRow, PairRow, PreferenceRow, make_key
from pairwright.schemas.scene import PLURALS, SceneGraph
from pairwright.tasks.evaluation.benchmark import Benchmark, Data, Exam, Marked, Replies, ask_at_length
from pairwright.tasks.evaluation.benchmarks.choices import RULE, Choice, Right, all_right, exam_of, judge_statement
from pairwright.tasks.evaluation.benchmarks.differences import PROMPT, TEST, References, with_references
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
SIZES = {"small": "small", "tiny": "small", "medium": "medium", "medium-sized": "medium", "large": "large",
         "big": "large"}  # fmt: skip
SECOND = re.compile(r"\bsecond (?:image|picture|photo(?:graph)?|one)\b", re.IGNORECASE)
SIDES = ("first", "second")
CHAIR_RULE = (
    "Each noun of a rendered shape, or another word for it, is a mention, unless it is denied. CHAIR_i: mentions of "
    "shapes that are not in the photograph, of all mentions; CHAIR_s: descriptions with such a mention; recall: shapes "
    "in the photograph that are mentioned; described: of mentions with a colour, material or size, those that some "
    "object in the photograph has, all together."
)
HALVES_RULE = (
    "What stands before the first mention of the second image is about the first one, the rest about the second; where "
    "it is not mentioned, all is about both, and a thing may be in either. Things are found as in `scenes`. changed: "
    "shapes of things that only one photograph shows, in any size, and that the answer mentions. true: answers in the "
    "template (or that nothing has changed) all of whose statements hold, and do not all hold of the pair exchanged; "
    "true statements: of all that can be read; unreadable: answers without any."
)
TRUE, UNREADABLE = "true", "unreadable"
"""Shares of answers about pairs that are entirely true, and that have no readable statement."""
BOTH_NOTE = "both: pairs of statements of which the true one and the false one were judged rightly (chance: 25 %)"
LAYOUT = "a dataset of rendered scenes: pairwright build --profile scenes"


@dataclass(frozen=True)
class Adjectives:
    """Distinguishing adjectives of some scenes."""

    colours: frozenset[str]
    materials: frozenset[str]

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        adjectives = "|".join(map(re.escape, sorted({*SIZES, *self.colours, *self.materials}, key=len, reverse=True)))
        nouns = "|".join(map(re.escape, sorted(SHAPES, key=len, reverse=True)))
        return re.compile(rf"\b((?:(?:{adjectives}),?\s+)*)({nouns})\b", re.IGNORECASE)

    def find_things(self, text: str) -> Iterator[Selector]:
        """Yield each object that the text states, in order, with repetitions."""
        for match in self._pattern.finditer(affirmed(text)):
            said = re.findall(r"[\w-]+", match[1].lower())
            yield Selector(
                shape=SHAPES[match[2].lower()],
                size=next((SIZES[word] for word in said if word in SIZES), None),
                colour=next((word for word in said if word in self.colours), None),
                material=next((word for word in said if word in self.materials), None),
            )


def adjectives_of(graphs: Iterable[SceneGraph]) -> Adjectives:
    """Return the adjectives of some scenes."""
    things = [thing for graph in graphs for thing in graph.objects]
    return Adjectives(frozenset(thing.colour for thing in things), frozenset(thing.material for thing in things))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Photograph or pair: images and their graphs."""

    key: str
    images: tuple[bytes, ...]
    graphs: tuple[SceneGraph, ...]


def _read_images(data: Data) -> dict[str, Shown]:
    rows: Iterable[ImageRow] = data.rows("images")
    found = {row.key: Shown(key=row.key, images=(row.image,), graphs=(row.graph,)) for row in rows if row.graph}
    if not found:
        raise ConfigError(f"--data {data.folder}: its images have no scene graphs; build one with --profile scenes")
    return found


def _rows_of(data: Data, table: str, without: tuple[str, ...] = ()) -> Iterator[Any]:
    """Yield the rows of a table; none where it does not exist."""
    with suppress(ConfigError):
        yield from data.rows(table, without=without)


def _trained_images(data: Data) -> frozenset[str]:
    rows: Iterable[PreferenceRow] = _rows_of(data, "preferences", without=("images", "rejected_images"))
    return frozenset(key for row in rows if row.split == "train" for key in row.image_keys)


def _held_out_pairs(data: Data) -> tuple[list[Shown], int]:
    """Return the pairs without training images, and the number of all pairs."""
    images, trained = _read_images(data), _trained_images(data)
    rows: Iterable[PairRow] = data.rows("pairs")
    pairs = sorted(rows, key=lambda row: row.key)
    known = images.keys() - trained
    kept = [(row.key, images[row.first], images[row.second]) for row in pairs if {row.first, row.second} <= known]
    return [Shown(key=key, images=a.images + b.images, graphs=a.graphs + b.graphs) for key, a, b in kept], len(pairs)


def _note(kept: int, of: int, data: Data) -> str:
    if not kept:
        raise ConfigError(f"--data {data.folder}: all of its images are in the training split; name another dataset")
    return f"{kept:,} of {of:,} are asked about: those whose images no preference of the training split shows"


def _exam(shown: Sequence[Shown], text: str, prompt: str, *, note: str, words: Adjectives, recall: str) -> Exam:
    """Return the exam of one description each: CHAIR, and as ``recall`` the share of expected shapes."""
    asked = [ask_at_length(one.key, text, one.images, prompt) for one in shown]

    def mark(replies: Replies) -> Marked:
        counted = [one for one in shown if one.key in replies.items]
        counts = [_count(one.graphs, replies.texts.get(one.key, ""), words) for one in counted]
        mentions, absent, said, right, named, wanted = map(list, zip(*counts, strict=True)) if counts else [[]] * 6
        ratios = {"CHAIR_i": (absent, mentions), recall: (named, wanted), "described": (right, said)}
        return Marked(marks=[measure_mean("CHAIR_s", [count > 0 for count in absent]), measure_ratios(ratios)])

    return Exam(questions=asked, mark=mark, read_answers=False, notes=(note,))


def _count(graphs: tuple[SceneGraph, ...], text: str, words: Adjectives) -> tuple[int, int, int, int, int, int]:
    """Return numbers of mentions, false ones, described objects, right ones, expected shapes named, and expected."""
    halves = SECOND.split(text, maxsplit=1) if len(graphs) > 1 else [text]
    about = [(halves[0], graphs[:1]), (halves[1], graphs[1:])] if len(halves) == 2 else [(text, graphs)]
    found = [(thing, shown) for half, shown in about for thing in words.find_things(half)]
    said = [(thing, shown) for thing, shown in found if thing.size or thing.colour or thing.material]
    wanted = _expected_shapes(graphs)
    return (
        len(found),
        sum(not _is_in(Selector(shape=thing.shape), shown) for thing, shown in found),
        len(said),
        sum(_is_in(thing, shown) for thing, shown in said),
        len(wanted & {thing.shape for thing, _ in found}),
        len(wanted),
    )


def _is_in(thing: Selector, graphs: Sequence[SceneGraph]) -> bool:
    return any(thing.select(graph) for graph in graphs)


def _expected_shapes(graphs: tuple[SceneGraph, ...]) -> set[str | None]:
    """Return the shapes that a text should name: of a photograph, or of objects in only one of two."""
    if len(graphs) == 1:
        return {thing.shape for thing in graphs[0].objects}
    first, second = graphs
    return {thing.shape for thing in (*_only_in(first, second), *_only_in(second, first))}


def _only_in(graph: SceneGraph, other: SceneGraph) -> list[Selector]:
    """Return the objects of a photograph that another lacks in any size."""
    looks = [Selector(shape=one.shape, colour=one.colour, material=one.material) for one in graph.objects]
    return [one for one in looks if not one.select(other)]


def _open_scenes(data: Data) -> Exam:
    images, trained = _read_images(data), _trained_images(data)
    shown = [images[key] for key in sorted(images.keys() - trained)]
    words = adjectives_of(graph for one in images.values() for graph in one.graphs)
    text, note = f"<image>\n{load('describe_image').render()}", _note(len(shown), len(images), data)
    return _exam(shown, text, "describe_image", note=note, words=words, recall="recall")


def _open_scene_differences(data: Data) -> Exam:
    """Return one question per pair of the test split, or per held-out pair without splits."""
    pairs, of = _held_out_pairs(data)
    note, splits = _note(len(pairs), of, data), {row.subject: row.split for row in _rows_of(data, "splits")}
    if splits:
        pairs = [pair for pair in pairs if splits.get(pair.key) == TEST]
        note = f"{len(pairs):,} of {of:,} are asked about: those of the test split"
        if not pairs:
            raise ConfigError(
                f"--data {data.folder}: no pair is in the test split: build more worlds, or set preferences.test_share"
            )
    words = adjectives_of(graph for pair in pairs for graph in pair.graphs)
    text = f"<image><image>{load_wordings(PROMPT).kinds['ask'][0].render()}"
    exam = _with_truth(_exam(pairs, text, PROMPT, note=note, words=words, recall="changed"), pairs)
    written: dict[str, list[str]] = {pair.key: [] for pair in pairs}
    for row in _rows_of(data, "differences"):
        written.get(row.subject, []).append(row.text)
    records = [Record(key, tuple(texts), is_list=True, where=key) for key, texts in written.items() if texts]
    return with_references(exam, References(records=records, blank=data.blank)) if records else exam


def _with_truth(exam: Exam, pairs: Sequence[Shown]) -> Exam:
    """Return the exam with its answers also checked statement by statement against the scene graphs."""

    def mark(replies: Replies) -> Marked:
        found = exam.mark(replies)
        judged = [
            _check_claims(replies.texts.get(one.key, ""), (one.graphs[0], one.graphs[1]))
            for one in pairs
            if one.key in replies.items
        ]
        true, right, said = map(list, zip(*judged, strict=True)) if judged else [[]] * 3
        each, unread = [1] * len(said), [not count for count in said]
        ratios = {TRUE: (true, each), "true statements": (right, said), UNREADABLE: (unread, each)}
        return replace(found, marks=[*found.marks, measure_ratios(ratios)])

    return replace(exam, mark=mark)


def _check_claims(text: str, graphs: Graphs) -> tuple[bool, int, int]:
    """Return whether an answer is true and specific to the order, its true statements, and readable ones."""
    claims = _read_claims(text)
    own = [holds(claim, graphs) for claim in claims]
    same = any(claim.kind == "no_change" for claim in claims)
    tells = same or not all(holds(claim, (graphs[1], graphs[0])) for claim in claims)
    return bool(own) and all(own) and tells, sum(own), len(own)


def _read_claims(text: str) -> list[Claim]:
    unchanged = tuple(wording.text for wording in load_wordings("answer_sentences").kinds["unchanged"])
    same = text.lower().startswith(unchanged) or says_no_change(text)
    claims, read = [Claim(side=0, kind="no_change")] * same, read_composed(text, difference_verbs())
    if isinstance(read, Difference) and (read.verbs or same):
        claims += read_phrases(read.first_half, read.second_half if read.verbs else read.first_half).claims
    return claims


def _open_scene_pairs(data: Data) -> Exam:
    pairs, of = _held_out_pairs(data)
    choices = [choice for pair in pairs for choice in _make_statements(pair)]
    return exam_of(choices, _score_statements, notes=(_note(len(choices) // 2, of, data), BOTH_NOTE))


def _make_statements(pair: Shown) -> Iterator[Choice]:
    only = [(side, thing) for side in (0, 1) for thing in _only_in(pair.graphs[side], pair.graphs[1 - side])]
    if not only:
        return
    side, thing = only[int(make_key("statement", pair.key)[:8], 16) % len(only)]
    words = " ".join(filter(None, (thing.size, thing.colour, thing.material, thing.shape)))
    for place, answer in ((side, "True"), (1 - side, "False")):
        said = f"The {SIDES[place]} image shows a {words}, and the {SIDES[1 - place]} image shows none."
        name, prompt = f"{pair.key}_{answer}", "judge_pair_statement"
        yield judge_statement(name, pair.images, said, answer=answer, prompt=prompt, item=pair.key)


def _score_statements(choices: Sequence[Choice], right: Right) -> list[Measured]:
    both = all_right(choices, right, lambda one: one.item)
    return [measure_mean("accuracy", list(right.values())), measure_mean("both", both)]


BENCHMARKS = (
    Benchmark(
        name="scenes",
        measures="whether a description of a rendered photograph names things that are not there (CHAIR)",
        layout=LAYOUT,
        open=_open_scenes,
        rule=CHAIR_RULE,
    ),
    Benchmark(
        name="scene-differences",
        measures="whether a description of how two rendered photographs differ is true of each of them (CHAIR by "
        "halves, and statement by statement), and how near it comes to what is written about them",
        layout=LAYOUT,
        open=_open_scene_differences,
        rule=HALVES_RULE,
    ),
    Benchmark(
        name="scene-pairs",
        measures="whether true and false statements about what only one of two rendered photographs shows are told "
        "apart",
        layout=LAYOUT,
        open=_open_scene_pairs,
        rule=RULE,
    ),
)
