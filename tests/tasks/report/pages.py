"""Write the pages of a dataset made by hand, and read them as a parser does."""

import re
from contextlib import contextmanager
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

from pairwright.tasks.report.browse_pages import BrowsePages
from pairwright.tasks.report.card_table import make_cards
from pairwright.tasks.report.explore_pages import Workshop
from pairwright.tasks.report.query_tables import Tables, open_database
from pairwright.tasks.report.search_cards import CardSearch
from pairwright.tasks.report.write_report import Subject, write_report
from tests.tasks.report.handmade import LINE, PROFILE, Handmade, build_handmade

NAME = "hand <b>made</b>"
VOID = {"meta", "link", "img", "input", "br", "line", "rect"}
SCRIPTS = [{"src": "report.js", "defer": None}]
WITH_DECISIONS = [*SCRIPTS, {"src": "decide.js", "defer": None}]
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


class Reader(HTMLParser):
    """Check that tags close in order; keep the texts and what is referred to."""

    def __init__(self, text):
        super().__init__()
        self.open, self.links, self.ids, self.tags, self.text = [], [], [], [], ""
        self.feed(text)
        assert self.open == [], "tags left open"

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        self.links += [attributes[name] for name in ("src", "href") if name in attributes]
        self.ids += [attributes["id"]] if "id" in attributes else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    @property
    def words(self):
        return " ".join(self.text.split())

    def attributes(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    def all_of(self, attribute):
        """Return the values of an attribute, whatever tag has it."""
        return [attributes[attribute] for _, attributes in self.tags if attribute in attributes]

    def check_inert(self, scripts):
        """Check that no text of the dataset became code: no other script, handler or style."""
        assert self.attributes("script") == scripts
        names = {name for _, attributes in self.tags for name in attributes}
        assert not [name for name in names if name.startswith("on") or name == "style"]


def words_of(html):
    """Return the words of a piece of a page, whatever tags are between them."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def lacking(text, phrases):
    """Return those of some lines that a text does not have."""
    lines = [line.strip() for line in phrases.strip().splitlines()]
    return [line for line in lines if line not in text]


def report(root: Path, made: Handmade, until="preferences", pairs=60, line=LINE, **given) -> Path:
    with build_handmade(root / "dataset", made, until=until, line=line) as (build, counts):
        (root / "report").mkdir()
        about = {"name": NAME, "version": "version 1", "made": "2026-11-20", "profile": PROFILE}
        subject = Subject(**about, counts=counts, pairs=pairs, **given)
        write_report(build, root / "report", subject=subject)
    return root / "report"


@contextmanager
def browse_build(root: Path, build, counts, profile=PROFILE):
    """Yield the served pages of a build, without the server."""
    scratch = root / "scratch"
    scratch.mkdir(exist_ok=True)
    about = {"name": NAME, "version": "version 1", "made": "", "pairs": 0}
    with open_database(str(scratch / "cards.duckdb"), scratch) as database:
        make_cards(Tables(build), database, watch=lambda _: None)
        subject = Subject(**about, counts=counts, profile=profile)
        given = {"scratch": scratch, "subject": subject, "workshop": Workshop()}
        yield BrowsePages(tables=Tables(build), cards=CardSearch(database), **given)


@contextmanager
def browse(root: Path, made: Handmade, **given):
    with (
        build_handmade(root / "dataset", made, **given) as (build, counts),
        browse_build(root, build, counts) as pages,
    ):
        yield pages


def read(folder, name="index.html"):
    return Reader((folder / name).read_text())
