"""Pages of preferences about one image, as a source brings them."""

import re

import pytest

from tests.tasks.report.handmade import HOSTILE, LINE_GIVEN, make_given
from tests.tasks.report.pages import WITH_DECISIONS, read, report


@pytest.fixture(scope="module")
def made():
    return make_given()


@pytest.fixture(scope="module")
def pages(tmp_path_factory, made):
    return report(tmp_path_factory.mktemp("given"), made, line=LINE_GIVEN)


def articles(folder):
    text = (folder / "preferences.html").read_text()
    return [
        " ".join(re.sub(r"<[^>]+>", " ", one).split())
        for one in text.split('<article class="pair"')[1:]
    ]


def test_preferences_have_a_page_of_their_own(pages, made):
    assert sorted(path.name for path in pages.glob("*.html")) == ["index.html", "preferences.html"]
    for name in ("index.html", "preferences.html"):
        page = read(pages, name)
        assert "preferences.html" in page.links
        assert all(
            (pages / link.partition("#")[0]).is_file()
            for link in page.links
            if link.partition("#")[0]
        )
        assert len(page.ids) == len(set(page.ids))
    assert "12 in full" in read(pages).text
    found = articles(pages)
    assert len(found) == 12
    taken, crops, none = (
        [one for one in found if words in one]
        for words in (
            "removed taken",
            "A random crop fallback",
            "None No removal changes how the text fits.",
        )
    )
    shown = {
        row.subject: row.rejected_image_maker
        for row in sorted(made.of("preferences"), key=lambda row: row.key)
    }
    makers = list(shown.values())
    assert (len(taken), len(crops), len(none)) == (
        makers.count("removal"),
        makers.count("crop"),
        makers.count(""),
    )
    assert taken
    assert crops
    assert none
    for one in found:
        assert "2 passed the checks, 1 failed" in one
        assert "3 tags refused" in one
        assert "first image" not in one, "there is only one"
        assert "second image" not in one
    page = read(pages, "preferences.html")
    assert [given for tag, given in page.tags if tag == "script"] == WITH_DECISIONS
    assert not any(
        name.startswith("on") or name == "style" for _, given in page.tags for name in given
    )
    assert page.text.count(HOSTILE.split("&")[0].strip()) > 24


def test_before_the_preferences_are_made_the_brought_ones_are_shown(tmp_path, made):
    folder = report(tmp_path, made, until="rejections", line=LINE_GIVEN)
    assert len(articles(folder)) == 12


def test_preferences_whose_images_nobody_looked_at_have_no_page(tmp_path, made):
    folder = report(tmp_path, made, until="given_preferences", line=LINE_GIVEN)
    assert [path.name for path in folder.glob("*.html")] == ["index.html"]
    assert read(folder).text.count("There is a lamp.") == 12
