"""Pages of preferences about one image, as a source brings them."""

import pytest

from tests.tasks.report.handmade import HOSTILE, LINE_GIVEN
from tests.tasks.report.pages import WITH_DECISIONS, read, report, words_of


@pytest.fixture(scope="module")
def pages(tmp_path_factory, given):
    return report(tmp_path_factory.mktemp("given"), given, line=LINE_GIVEN)


def articles(folder):
    """Return the words about each preference."""
    text = (folder / "preferences.html").read_text()
    return [words_of(part) for part in text.split('<article class="pair"')[1:]]


def test_preferences_have_a_page_of_their_own(pages):
    assert sorted(path.name for path in pages.glob("*.html")) == ["index.html", "preferences.html"]
    for name in ("index.html", "preferences.html"):
        page = read(pages, name)
        assert "preferences.html" in page.links
        files = [link.partition("#")[0] for link in page.links]
        assert all((pages / file).is_file() for file in files if file)
        assert len(page.ids) == len(set(page.ids))
    assert "12 in full" in read(pages).text


def test_each_preference_tells_how_its_image_was_rejected(pages, given):
    texts = articles(pages)
    rows = sorted(given.of("preferences"), key=lambda row: row.key)
    by_image = {row.subject: row.rejected_image_maker for row in rows}  # one of each image
    makers = [*by_image.values()]
    assert set(makers) == {"removal", "crop", ""}
    phrases = {
        "removal": "removed taken",
        "crop": "A random crop fallback",
        "": "None No removal changes how the text fits.",
    }
    for maker, phrase in phrases.items():
        assert sum(phrase in text for text in texts) == makers.count(maker)
    for text in texts:
        assert "2 passed the checks, 1 failed" in text
        assert "3 tags refused" in text
        assert "first image" not in text, "there is only one"
        assert "second image" not in text


def test_texts_are_shown_not_interpreted(pages):
    page = read(pages, "preferences.html")
    page.check_inert(WITH_DECISIONS)
    assert page.text.count(HOSTILE.split("&")[0].strip()) > 24


def test_before_the_preferences_are_made_the_brought_ones_are_shown(tmp_path, given):
    folder = report(tmp_path, given, until="rejections", line=LINE_GIVEN)
    assert len(articles(folder)) == 12


def test_preferences_whose_images_nobody_looked_at_have_no_page(tmp_path, given):
    folder = report(tmp_path, given, until="given_preferences", line=LINE_GIVEN)
    assert [path.name for path in folder.glob("*.html")] == ["index.html"]
    assert read(folder).text.count("There is a lamp.") == 12
