"""The report of a real build, small, that served models wrote: a scripted server answers from what
it is shown."""

import hashlib
import re
from collections import Counter

import pytest

import pairwright as pw
from pairwright.tasks.serving.probe import LOOK
from tests.fixtures.builds import build_here
from tests.fixtures.chat_server import chat_server
from tests.flows.conftest import SMALL, WIDE, with_images_of

SERVED = [
    "captions.writer=served",
    "differences.writer=served",
    *("controls.enabled=true", "controls.kinds=[swapped]"),
    "judging.enabled=true",
    "comparisons.writer=served",
]
COMPARISON = (
    "Commonalities: Both images show a table.\n\n"
    "Differences:\n1. Object types: Image 1 has another thing.\n2. Counting the objects: Image 2 "
    "has three things."
)
KINDS = {
    "probe": LOOK,
    "captions": "in one detailed paragraph",
    "judged": "Rate what was written",
    "comparisons": "Summarize the commonalities",
}
"""How the prompt of each stage is known; all others ask about a difference."""


def kind_of(asked) -> str:
    return next((stage for stage, words in KINDS.items() if words in asked.text), "difference")


def thing(image: bytes) -> str:
    return f"the ball number {int(hashlib.sha256(image).hexdigest()[:6], 16)}"


def answer(asked) -> str:
    """Write what is right; each difference that is asked with an even seed is cut off."""
    kind = kind_of(asked)
    if kind == "probe":
        return "A brown square."
    if kind == "captions":
        return (
            f"A wooden table in front of a pale wall carries {thing(asked.images[0])} and nothing "
            f"else. "
        ) * 2
    if kind == "judged":
        return "1" if asked.seed % 3 == 0 else "5"
    if kind == "comparisons":
        return COMPARISON
    first, second = map(thing, asked.images)
    halves = f"first image shows {first}, while the second image shows {second}."
    text = f"The difference between the two images is that the {halves}"
    return text if asked.seed % 2 else text[:-10]


@pytest.fixture(scope="module")
def served(rendered, tmp_path_factory):
    """Return the dataset and how often each kind of thing was asked."""
    folder = with_images_of(rendered, tmp_path_factory.mktemp("served") / "demo")
    with chat_server(answer) as server:
        chat = [
            f"models.chat.endpoint={server.url}",
            "models.chat.model=tiny",
            'models.chat.structured_output="none"',
        ]
        assert build_here(folder, settings=[*SMALL, *WIDE, *SERVED, *chat]).is_complete
        asked = Counter(map(kind_of, server.asked))
    pw.open(folder).report(pairs=30)
    return folder, asked


def table_of(folder, label):
    """Return the cells of a table of the first page by their row."""
    text = (
        (folder / "report/index.html")
        .read_text()
        .split(f'aria-label="{label}"')[1]
        .split("</table>")[0]
    )
    lines = [
        [words_in(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
        for row in text.split("<tr>")
    ]
    return {line[0]: dict(zip(lines[1], line, strict=True)) for line in lines[2:]}


def words_in(text):
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def test_what_was_asked_is_what_the_server_saw(served):
    folder, asked = served
    uses = table_of(folder, "Served models")
    stages = table_of(folder, "Stages")
    for stage in ("captions", "comparisons"):
        assert int(uses[stage]["requests"]) == asked[stage], stage
    assert (
        sum(int(uses[stage]["requests"]) for stage in ("judged", "judged_rejected"))
        == asked["judged"]
    )
    # A pair whose every answer was cut off has no row that could say what was asked: three times
    # each.
    lost = int(stages["described"]["dropped"])
    in_rows = int(uses["described"]["requests"]) + int(uses["controlled"]["requests"])
    assert in_rows + 3 * lost == asked["difference"]
    assert {use["model"].split()[0] for use in uses.values()} == {"tiny"}


def test_pages_and_card_say_it(served, tmp_path):
    folder, _ = served
    index = words_in((folder / "report/index.html").read_text())
    for words in (
        "Descriptions of differences",
        "Words of commonalities 5",
        "Checks of descriptions",
        "judge: low rating",
        "Served models",
    ):
        assert words in index
    pairs = "".join(path.read_text() for path in (folder / "report").glob("pairs-*.html"))
    for words in ("Answers of the models", "<b>judged</b> failed"):
        assert words in pairs
    pw.open(folder).export("hf", str(tmp_path / "out"))
    card = (tmp_path / "out/README.md").read_text()
    assert "descriptions of differences" in card
    assert re.search(r"tiny answered \d+ requests with \d+ tokens", card)
