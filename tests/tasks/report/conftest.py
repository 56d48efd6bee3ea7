"""What the tests of pages share: a dataset made by hand, which none may change, and a browser."""

import pytest

from tests.tasks.report.browser import open_chromium
from tests.tasks.report.handmade import make_whole


@pytest.fixture(scope="module")
def made():
    return make_whole()


@pytest.fixture(scope="module")
def browser():
    with open_chromium() as browser:
        yield browser
