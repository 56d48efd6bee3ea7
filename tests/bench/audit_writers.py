"""Scripted writers and judges for audits, behind an OpenAI-compatible server.

They know the scene graphs of the planted photographs that they are shown: an image's key is the
hash of its bytes, which are sent as they are. Each writer is as consistent as it can be: the pair
in the other order gets the text the other way round, and one image twice no difference.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

import pyarrow.parquet as pq

from pairwright.prompts import natural_verbs
from pairwright.prompts.difference_prompts import fill_template
from pairwright.schemas.arrow import from_table, schema_of
from pairwright.schemas.claims import Graphs, is_true_claim
from pairwright.schemas.rows import ImageRow, make_key
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.audit.judge_texts import AXES, SYNONYMS, use_known_words
from pairwright.tasks.captioning.control_differences import NONE
from pairwright.tasks.captioning.describe_differences import compose_difference
from pairwright.tasks.scenes.read_phrases import read_phrases
from pairwright.tasks.scenes.vocabulary import COLOURS, SHAPES
from pairwright.tasks.texts.differences import Difference, read_difference
from tests.fixtures.chat_server import Asked

Writer = Callable[[Graphs, Random], str]
CAPTION = "A photograph with several things in it, seen from the front."
GENERIC = ("several objects in a scene", "a similar scene with different objects")
NOISE = {"window", "walk", "seven", "under", "paper", "moon", "quickly", "sing", "river", "cold"}
VAGUE = re.compile(r"\b(?:scene|objects|photograph|view)\b")
OTHER_WORDS = {ours: other for other, ours in reversed(list(SYNONYMS.items()))}
DENYING = re.compile(r"wrong|false|contradict|Was anything|a thing that only")
"""Questions whose answer is no where the statement is true."""


def write_faithful(graphs: Graphs, rng: Random) -> str:
    """Describe the change as it is."""
    for _ in range(20):
        statement = compose_difference(graphs, rng)
        if statement is not None:
            return statement.text
    return NONE


def write_paraphrase(graphs: Graphs, rng: Random) -> str:
    """Describe the change as it is, with other words for the same."""
    text = write_faithful(graphs, rng)

    def replace_word(match: re.Match[str]) -> str:
        word = match[0]
        if word in OTHER_WORDS:
            return OTHER_WORDS[word]
        if word.removesuffix("s") in OTHER_WORDS:
            return f"{OTHER_WORDS[word.removesuffix('s')]}s"
        return word

    return re.sub(r"[a-z]+", replace_word, text)


def write_invention(graphs: Graphs, rng: Random) -> str:
    """Describe things that are in neither photograph."""
    things: list[str] = []
    present = {thing.shape for graph in graphs for thing in graph.objects}
    shapes = sorted(set(SHAPES) - present)
    for _ in range(2):
        things.append(f"a {rng.choice(sorted(COLOURS))} {rng.choice(shapes)}")
    return _fill(things[0], things[1], rng)


def write_exchange(graphs: Graphs, rng: Random) -> str:
    """Describe each photograph as the other one."""
    return write_faithful((graphs[1], graphs[0]), rng)


def write_generic(graphs: Graphs, rng: Random) -> str:
    """Say what is true of any photograph."""
    return _fill(*GENERIC, rng)


def write_random(graphs: Graphs, rng: Random) -> str:
    """Say words at random."""
    words = sorted(NOISE)
    halves = (" ".join(rng.choices(words, k=6)) for _ in range(2))
    return _fill(*halves, rng)


WRITERS: Mapping[str, Writer] = {
    "faithful": write_faithful,
    "faithful in other words": write_paraphrase,
    "invents": write_invention,
    "mixes up first and second": write_exchange,
    "generic": write_generic,
    "words at random": write_random,
}


def _fill(first: str, second: str, rng: Random) -> str:
    verbs = rng.sample(natural_verbs(), 2)
    return fill_template(verbs, first, second)


def judge_named(accuracy: float) -> str:
    """Return the model's name of a judge that answers rightly with this probability."""
    return f"judge {accuracy:g}"


class ScriptedModels:
    """Scripted writers and judges: a model's name says which of them answers.

    A writer's name is a key of ``WRITERS``; it judges as rightly as ``judge_named(1.0)``.
    """

    def __init__(self, dataset: Path) -> None:
        """Answer about the images of a dataset, which may still be built."""
        self.dataset = dataset
        self._graphs: dict[str, SceneGraph] = {}

    def answer(self, asked: Asked) -> str:
        """Return the answer to any question of a build."""
        if "Answer yes or no" in asked.text:
            return self._judge(asked)
        if asked.text.startswith("Here is a description"):
            return _split(asked.text)
        if len(asked.images) == 2:
            return self._describe(asked)
        return CAPTION

    def _describe(self, asked: Asked) -> str:
        first, second = asked.images
        if first == second:
            return NONE
        writer = WRITERS[asked.body["model"]]
        ordered = sorted((first, second), key=make_key)
        graphs = (self._graph(ordered[0]), self._graph(ordered[1]))
        text = writer(graphs, Random(make_key(*ordered)))
        if ordered[0] == first or text == NONE:
            return text
        return _turn_round(text)

    def _judge(self, asked: Asked) -> str:
        """Answer rightly with the probability of the judge's accuracy."""
        denies = DENYING.search(_question(asked.text)) is not None
        truth = self._is_true(asked) != denies
        _, _, share = asked.body["model"].partition("judge ")
        accuracy = float(share or 1.0)
        lot = Random(make_key(asked.text, *asked.images)).random()
        if lot >= accuracy:
            truth = not truth
        return "yes" if truth else "no"

    def _is_true(self, asked: Asked) -> bool:
        graphs = [self._graph(image) for image in asked.images]
        if len(graphs) == 2:
            return graphs[0].objects == graphs[1].objects
        statement = re.search(r'"(.*)"', asked.text, re.DOTALL)
        assert statement
        return is_true_statement(statement[1], graphs[0])

    def _graph(self, image: bytes) -> SceneGraph:
        key = make_key(image)
        if key not in self._graphs:
            self._graphs = read_graphs(self.dataset)
        return self._graphs[key]


def _turn_round(text: str) -> str:
    """Return a description of the pair in the other order."""
    parsed = read_difference(text, natural_verbs())
    if not isinstance(parsed, Difference):  # that nothing changed: no template
        return text
    verbs = (parsed.verbs[1], parsed.verbs[0]) if len(parsed.verbs) == 2 else natural_verbs()[:2]
    return fill_template(verbs, parsed.second_half, parsed.first_half)


def _question(text: str) -> str:
    """Return a yes/no question without the statement that it quotes."""
    return re.sub(r'".*"', " ", text, flags=re.DOTALL)


def _split(text: str) -> str:
    description = re.search(r'"(.*?)"\n', text, re.DOTALL)
    quoted = description[1] if description else text
    parts = [part.strip() for part in re.split(r",| and ", quoted) if part.strip()]
    return json.dumps({"sentences": parts})


def is_true_statement(statement: str, graph: SceneGraph) -> bool:
    """Return whether a statement is true of a planted photograph, as far as it can be read."""
    known = use_known_words(statement).rstrip(".").replace("exactly ", "")
    claims = read_phrases(known, "").claims
    if claims:
        return all(is_true_claim(claim, (graph, graph)) for claim in claims)
    for axis in AXES:
        level = axis.levels.get(graph.light, axis.levels.get(graph.viewpoint, 0))
        if axis.more.search(known):
            return level > 0
        if axis.less.search(known):
            return level < 0
    return bool(VAGUE.search(known))


def read_graphs(dataset: Path) -> dict[str, SceneGraph]:
    """Return the scene graphs of a dataset's images so far, by the key of the image."""
    columns = [name for name in schema_of(ImageRow).names if name != "image"]
    graphs: dict[str, SceneGraph] = {}
    for path in dataset.glob("tables/images/*/part-*.parquet"):
        present = [name for name in columns if name in pq.read_schema(path).names]
        for row in from_table(pq.read_table(path, columns=present), ImageRow):
            if row.graph is not None:
                graphs[row.key] = row.graph
    return graphs
