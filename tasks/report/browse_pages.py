"""Render served pages: the cards of a search with their pictures; store decisions.

Reads only the rows of one page's cards. Each page has a temporary folder for its pictures; those of
the latest pages are kept. One page is rendered at a time.
"""

import shlex
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pairwright.schemas.decisions import Decision, Decisions
from pairwright.tasks.pages.environment import LOOKS
from pairwright.tasks.report.explore_pages import ExplorePages, Workshop
from pairwright.tasks.report.gather_cards import (
    HERE,
    gather_pairs,
    gather_singles,
    make_card_environment,
)
from pairwright.tasks.report.query_tables import Tables
from pairwright.tasks.report.search_cards import ORDERS, CardSearch, Hits, Search
from pairwright.tasks.report.thresholds import Limits, compare_annotators, view_thresholds
from pairwright.tasks.report.write_images import PICTURES, PictureFolder
from pairwright.tasks.report.write_report import Subject
from pairwright.tasks.store.decision_table import (
    KeptFilter,
    Sorted,
    decision_files,
    describe_decisions,
    keep_filter,
    read_decisions,
    read_filters,
    write_decisions,
)

FILES: Mapping[str, Path] = {
    "report.css": LOOKS,
    "pairs.css": HERE / "pairs.css",
    "browse.css": HERE / "browse.css",
    "report.js": HERE / "report.js",
    "decide.js": HERE / "decide.js",
    "explore.js": HERE / "explore.js",
}
"""Files of every page, by name."""
KEPT_PAGES = 20  # pages with pictures to keep: a browser loads them while scrolling
SIZES = (5, 10, 20, 50)
DECIDED = {
    "undecided": "not decided yet",
    "decided": "decided",
    "accept": "accepted",
    "reject": "rejected",
    "edit": "edited",
}
DEFAULT = Search()
PAGING = {name: getattr(DEFAULT, name) for name in ("order", "size", "after", "before")}


@dataclass
class BrowsePages:
    """Renderer of the pages of one version of a dataset with resolved stages."""

    tables: Tables
    cards: CardSearch
    subject: Subject
    scratch: Path
    workshop: Workshop
    annotator: str = ""  # author of the decisions and judgements
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _decision_files: list[str] | None = None
    _decisions: Decisions = field(default_factory=Decisions)
    _folders: deque[PictureFolder] = field(default_factory=lambda: deque[PictureFolder]())

    def __post_init__(self) -> None:
        self.tables.open_all()
        self._environment = make_card_environment()
        has_pairs = self.tables.has_table("pairs")
        self._frame: dict[str, Any] = {
            "subject": self.subject,
            "served": True,
            "here": "browse",
            "judging": has_pairs and self.tables.has_table("neighbours"),
            "worded": self.tables.has_table("differences") or not has_pairs,
            "noun": "pair" if has_pairs else "preference",
            "all_cards": self.cards.count_cards(),
            "options": _list_options(self.cards),
            "has": self.cards.filled_columns(),
            "orders": ORDERS,
            "sizes": SIZES,
            "verdicts": DECIDED,
            "mapped": self.tables.has_table("embeddings"),
            "kept_filters": read_filters(self.tables.build.folder),
        }
        self.explore = ExplorePages(
            tables=self.tables,
            database=self.cards.database.cursor(),
            scratch=self.scratch,
            environment=self._environment,
            frame=self._frame,
            workshop=self.workshop,
        )

    def map(self, query: Mapping[str, str], token: str) -> tuple[str, int]:
        """Return the page of the map with the current decisions, and its HTTP status."""
        with self._lock:
            self._refresh_decisions()
        return self.explore.map(query, token, self._decisions)

    def keep_filter(self, saved: KeptFilter) -> None:
        """Save a search under a name."""
        keep_filter(self.tables.build.folder, saved)
        self._frame["kept_filters"] = read_filters(self.tables.build.folder)

    def page(self, query: Mapping[str, str], token: str) -> tuple[str, int]:
        """Return the page of a query string, and its HTTP status."""
        search, fault = Search.parse(query)
        with self._lock:
            self._refresh_decisions()
            hits = self.cards.search(search)
            views = self._views(hits)
        text = self._environment.get_template("browse.html.j2").render(
            **self._frame,
            token=token,
            search=search,
            fault=fault,
            hits=hits,
            views=views,
            decided=self._decisions.count_verdicts(),
            judged=self._decisions.by_annotator.get(self.annotator, {}),
            narrowed=bool(search.query_string(**PAGING)),
            filtered=bool(
                search.query_string(
                    q="",
                    after="",
                    before="",
                )
            ),
            **_page_links(search, hits),
        )
        return text, 400 if fault else 200

    def _views(self, hits: Hits) -> Sequence[Any]:
        pictures = PictureFolder(Path(tempfile.mkdtemp(dir=self.scratch)))
        kwargs: dict[str, Any] = {
            "pictures": pictures,
            "first_number": hits.first,
            "decisions": self._decisions,
        }
        if self.tables.has_table("pairs"):
            unpaired = self.cards.unpaired(hits.keys)
            pairs = gather_pairs(
                self.tables,
                hits.keys,
                page="",
                unpaired=unpaired,
                **kwargs,
            )
            views = list(pairs)
        else:
            keys = list(zip(hits.keys, hits.subjects, strict=True))
            views = gather_singles(self.tables, self.tables.preferences, keys, **kwargs)
        self._folders.append(pictures)
        if len(self._folders) > KEPT_PAGES:
            oldest = self._folders.popleft()
            shutil.rmtree(oldest.root)
        return views

    def thresholds(self, query: Mapping[str, str], token: str) -> tuple[str, int]:
        """Return the page of judgements and suggested thresholds, and its HTTP status."""
        limits, fault = Limits.parse(query)
        with self._lock:
            self._refresh_decisions()
            view = view_thresholds(self.cards.database, self.subject.profile.mining, limits)
            agreements = list(compare_annotators(self._decisions.by_annotator))
        content: dict[str, Any] = {
            **self._frame,
            "here": "thresholds",
            "token": token,
            "view": view,
            "dataset": shlex.quote(self.tables.build.folder.url),
            "limits": limits,
            "agreements": agreements,
            "pick": limits.query_string,
        }
        text = self._environment.get_template("thresholds.html.j2").render(**content)
        return text, 400 if fault else 200

    def _refresh_decisions(self) -> None:
        folder = self.tables.build.folder
        files = decision_files(folder)
        if files != self._decision_files:
            self._decisions = read_decisions(folder)
            self.cards.set_decisions(self._decisions, self.annotator)
            self._decision_files = files

    def find_picture(self, name: str) -> Path | None:
        """Return the file of a picture of the latest pages; ``None`` for other names."""
        src = f"{PICTURES}/{name}"
        folders = [*self._folders]  # another thread may add a page meanwhile
        for folder in reversed(folders):
            for picture in folder.written.values():
                if picture.src == src:
                    return folder.root / src
        return None

    def decide(self, decisions: Sequence[Decision]) -> Sorted:
        """Store decisions about rows of this version; return the stored and the refused ones."""
        with self._lock:
            signed = [decision.model_copy(update={"by": self.annotator}) for decision in decisions]
            sorted_decisions = self.cards.sort(signed)
            build = self.tables.build
            write_decisions(build.folder, describe_decisions(build, sorted_decisions.known))
        return sorted_decisions


def _list_options(cards: CardSearch) -> dict[str, list[tuple[str, str]]]:
    """Return the values of each filter with their labels."""
    options: dict[str, list[tuple[str, str]]] = {}
    for name, values in cards.facets().items():
        options[name] = []
        if len(values) > 1 or name == "reason":  # a value of all cards filters nothing
            options[name] = [(value, f"{value} ({count:,})") for value, count in values]
    return options


def _page_links(search: Search, hits: Hits) -> dict[str, str]:
    """Return the query strings of the next, the previous and the first page; empty: none."""
    links = {"next": "", "previous": "", "start": ""}
    if hits.keys and hits.last < hits.total:
        links["next"] = search.query_string(after=hits.keys[-1], before="")
    if hits.keys and hits.first > 1:
        links["previous"] = search.query_string(before=hits.keys[0], after="")
    if hits.first > 1:
        links["start"] = search.query_string(before="", after="")
    return links
