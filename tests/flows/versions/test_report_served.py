"""The report of a real build, small, that served models wrote: a scripted server answers from what
it is shown."""

import re
from collections import Counter

import pytest

import pairwright as pw
from tests.fixtures.builds import build_here
from tests.fixtures.chat_server import chat_server
from tests.fixtures.scripted_model import answer, kind_of
from tests.flows.conftest import SMALL, WIDE, with_images_of
from tests.tasks.report.pages import words_of

SERVED = [
    "captions.writer=served",
    "differences.writer=served",
    "controls.enabled=true",
    "controls.kinds=[swapped]",
    "judging.enabled=true",
    "comparisons.writer=served",
    "models.chat.model=tiny",
    'models.chat.structured_output="none"',
]


@pytest.fixture(scope="module")
def served(rendered, tmp_path_factory):
    """Return the dataset and how often each kind of thing was asked."""
    folder = with_images_of(rendered, tmp_path_factory.mktemp("served") / "demo")
    with chat_server(answer) as server:
        endpoint = f"models.chat.endpoint={server.url}"
        assert build_here(folder, settings=[*SMALL, *WIDE, *SERVED, endpoint]).is_complete
        counts = Counter(map(kind_of, server.asked))
    pw.open(folder).report(pairs=30)
    return folder, counts


def table_of(folder, label):
    """Return the cells of a table of the first page by their row."""
    page = (folder / "report/index.html").read_text()
    table = page.split(f'aria-label="{label}"')[1].split("</table>")[0]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in table.split("<tr>")]
    head, *lines = [[words_of(cell) for cell in row] for row in rows[1:]]
    return {line[0]: dict(zip(head, line, strict=True)) for line in lines}


def test_requests_of_the_report_are_those_that_the_server_saw(served) -> None:
    folder, counts = served
    uses = table_of(folder, "Served models")
    requests = {stage: int(use["requests"]) for stage, use in uses.items()}
    assert requests["captions"] == counts["captions"]
    assert requests["comparisons"] == counts["comparisons"]
    assert requests["judged"] + requests["judged_rejected"] == counts["judged"]
    # A pair whose every answer was cut off has no row that could say what was asked: three times
    # each.
    lost = int(table_of(folder, "Stages")["described"]["dropped"])
    in_rows = requests["described"] + requests["controlled"]
    assert in_rows + 3 * lost == counts["difference"]
    assert {use["model"].split()[0] for use in uses.values()} == {"tiny"}


def test_the_card_of_an_export_tells_of_models(served, tmp_path) -> None:
    folder, _ = served
    pw.open(folder).export("hf", str(tmp_path / "out"))
    card = (tmp_path / "out/README.md").read_text()
    assert "descriptions of differences" in card
    assert re.search(r"tiny answered \d+ requests with \d+ tokens", card)
