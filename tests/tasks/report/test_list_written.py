"""The table of what was written and refused, on the page and as plain text."""

import pytest

from pairwright.tasks.report.list_written import list_written, write_plainly
from pairwright.tasks.report.measure_checks import measure_checks
from pairwright.tasks.report.measure_served import measure_served
from pairwright.tasks.report.tables import Tables
from tests.tasks.report.handmade import build_handmade, make_whole
from tests.tasks.report.handmade_served import CHAT, LANGUAGE, LINE_SERVED, make_served


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with build_handmade(tmp_path_factory.mktemp("served"), make_served(3, 3), line=LINE_SERVED) as (build, counts):
        tables = Tables(build)
        uses, checks = measure_served(tables), measure_checks(tables)
        return list_written(tables, counts, uses), uses, checks


def test_every_stage_that_writes_is_listed_with_its_writer(served):
    by = {one.counts.stage: one.by for one in served[0]}
    assert list(by) == [
        "captions", "described", "controlled", "grounded", "judged", "differences", "comparisons", "questions",
        "swapped", "edited", "retrieved", "sampled", "refuted", "counterfactual",
    ]  # fmt: skip
    assert by["captions"] == by["described"] == by["differences"] == by["sampled"] == CHAT
    assert by["comparisons"] == by["questions"] == by["counterfactual"] == LANGUAGE
    assert by["controlled"] == CHAT
    assert by["edited"] == "a rule"
    assert by["grounded"] == ""


def test_as_plain_text(served):
    text = write_plainly(*served)
    lines = text.splitlines()
    assert [line for line in lines if line.startswith("#")] == [
        "## What was written, what was refused, and why",
        "## Served models",
        "## Checks of descriptions",
    ]
    tables = [line for line in lines if line.startswith("|")]
    widths = {line.replace("\\|", "").count("|") for line in tables}
    assert widths == {9, 10, 6}
    (described,) = [line for line in tables if line.startswith("| described |") and "template" in line]
    assert described == f"| described | {CHAT} | 8 | 13 | 1 | 0 | 0 | 1 x off the template |"
    assert "| judge &lt;b>model&lt;/b> |" in text


def test_scenes_list_their_own_writer(tmp_path):
    with build_handmade(tmp_path, make_whole(2, 2)) as (build, counts):
        written = list_written(Tables(build), counts, ())
    assert {one.counts.stage: one.by for one in written} == {
        "captions": "by hand",
        "described": "by hand",
        "differences": "by hand",
        "comparisons": "by hand",
        "swapped": "a rule",
        "edited": "a rule",
        "retrieved": "retrieval",
    }
    text = write_plainly(written, (), ())
    assert text.count("## ") == 1
