"""What the tests of pages share: datasets made by hand and a report, which none may change, and a
browser."""

import pytest

from tests.fixtures.build_once import build_once
from tests.tasks.report.browser import open_chromium
from tests.tasks.report.handmade import make_given, make_whole
from tests.tasks.report.handmade_served import make_served
from tests.tasks.report.pages import report


@pytest.fixture(scope="session")
def made():
    return make_whole()


@pytest.fixture(scope="session")
def small():
    return make_whole(3, 3)


@pytest.fixture(scope="session")
def given():
    return make_given()


@pytest.fixture(scope="session")
def served():
    return make_served()


@pytest.fixture(scope="session")
def whole(tmp_path_factory, made):
    """Return the folder of a report with two pages of pairs."""

    def write(folder):
        folder.mkdir()
        report(folder, made, pairs=14)

    return build_once(tmp_path_factory, "whole", write) / "report"


@pytest.fixture(scope="module")
def browser():
    with open_chromium() as browser:
        yield browser
