"""Render pages that are served: the cards that a search has found, with their pictures; and take decisions.

Reads the rows about the cards of one page only. Pictures are written to folders of this process as pages show them;
those of the latest pages are kept. One page is made at a time, and the charts beside them.
"""

import shlex
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from pydantic import ValidationError

from pairwright.schemas.decisions import Decision, Decisions, say_errors
from pairwright.schemas.errors import StoreError
from pairwright.tasks.pages.environment import HERE as LOOKS
from pairwright.tasks.report.card_table import CardFile
from pairwright.tasks.report.gather_cards import HERE, gather_pairs, gather_singles, make_card_environment
from pairwright.tasks.report.search_cards import ORDERS, CardSearch, Hits, Search
from pairwright.tasks.report.tables import Tables
from pairwright.tasks.report.thresholds import Limits, view_thresholds
from pairwright.tasks.report.write_images import FOLDER as PICTURES
from pairwright.tasks.report.write_images import PictureFolder
from pairwright.tasks.report.write_report import Subject, write_report
from pairwright.tasks.store.decisions import Sorted, decision_files, read_decisions, write_decisions

FILES: Mapping[str, Path] = {
    "report.css": LOOKS / "report.css",
    **{name: HERE / name for name in ("pairs.css", "browse.css", "report.js", "decide.js")},
}
"""What every page loads, by name."""
KEPT_PAGES = 20
"""Pages whose pictures are kept: a browser loads them as they are scrolled to."""
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


class NotMadeYetError(Exception):
    """What is asked for is being made."""


@dataclass
class BrowsePages:
    """Render the pages of one version of a dataset; its stages are settled."""

    tables: Tables
    file: CardFile
    cards: CardSearch
    subject: Subject
    scratch: Path
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _known: list[str] | None = None
    _decisions: Decisions = field(default_factory=Decisions)
    _shown: deque[PictureFolder] = field(default_factory=lambda: deque[PictureFolder]())
    """The pictures of the latest pages."""
    _overview: Future[dict[str, Path]] | None = None

    def __post_init__(self) -> None:
        self.tables.open_all()
        self._environment = make_card_environment()
        self._frame: dict[str, Any] = {
            "subject": self.subject,
            "served": True,
            "pages": (),
            "in_full": "",
            "here": "browse",
            "judging": self.file.about_pairs and self.tables.has("neighbours"),
            "worded": self.tables.has("differences") or not self.file.about_pairs,
            "noun": "pair" if self.file.about_pairs else "preference",
            "all_cards": self.cards.count(),
            # One value that all cards have filters nothing.
            "options": {
                name: [(value, f"{value} ({number:,})") for value, number in values]
                if len(values) > 1 or name == "reason"
                else []
                for name, values in self.cards.facets().items()
            },
            "has": {name: self.cards.has(name) for name in ("similarity", "score", "gap")},
            "orders": ORDERS,
            "sizes": SIZES,
            "verdicts": DECIDED,
        }

    def page(self, query: Mapping[str, str], token: str) -> tuple[str, int]:
        """Return the page that a query string asks for, and its HTTP status."""
        try:
            search, fault = Search.model_validate({**query}), ""
        except ValidationError as error:
            search, fault = DEFAULT, say_errors(error)
        with self._lock:
            self._look_at_decisions()
            hits = self.cards.find(search)
            views = self._views(hits)
        text = self._environment.get_template("browse.html.j2").render(
            **self._frame,
            token=token,
            search=search,
            fault=fault,
            hits=hits,
            views=views,
            decided=self._decisions.count(),
            judged=self._decisions.judged,
            narrowed=bool(_query(search, **PAGING)),
            filtered=bool(_query(search, q="", after="", before="")),
            next=_query(search, after=hits.keys[-1], before="") if hits.keys and hits.last < hits.total else "",
            previous=_query(search, before=hits.keys[0], after="") if hits.keys and hits.first > 1 else "",
            start=_query(search, before="", after="") if hits.first > 1 else "",
        )
        return text, 400 if fault else 200

    def _views(self, hits: Hits) -> Sequence[Any]:
        pictures = PictureFolder(Path(tempfile.mkdtemp(dir=self.scratch)))
        told: dict[str, Any] = {"pictures": pictures, "first_number": hits.first, "decisions": self._decisions}
        if self.file.about_pairs:
            unpaired = self.cards.unpaired(hits.keys)
            views = list(gather_pairs(self.tables, hits.keys, page="", unpaired=unpaired, **told))
        else:
            found = list(zip(hits.keys, hits.subjects, strict=True))
            views = gather_singles(self.tables, self.file.preferences, found, **told)
        self._shown.append(pictures)
        if len(self._shown) > KEPT_PAGES:
            shutil.rmtree(self._shown.popleft().root)
        return views

    def thresholds(self, query: Mapping[str, str], token: str) -> tuple[str, int]:
        """Return the page of what was judged and the thresholds that it suggests, and its HTTP status."""
        try:
            limits, status = Limits.model_validate({**query}), 200
        except ValidationError:
            limits, status = Limits(), 400
        with self._lock:
            self._look_at_decisions()
            view = view_thresholds(self.cards.database, self.subject.profile.mining, limits)
        dataset = shlex.quote(self.tables.build.folder.url)
        told = {**self._frame, "here": "thresholds", "token": token, "view": view, "dataset": dataset, "limits": limits}
        return self._environment.get_template("thresholds.html.j2").render(**told), status

    def _look_at_decisions(self) -> None:
        """Know what is decided, by anybody, before a page is made."""
        folder = self.tables.build.folder
        files = decision_files(folder)
        if files != self._known:
            self._decisions = read_decisions(folder)
            self.cards.set_decisions(self._decisions)
            self._known = files

    def picture(self, name: str) -> Path | None:
        """Return the file of a picture that one of the latest pages shows; nothing else has a name here."""
        src = f"{PICTURES}/{name}"
        folders = [*self._shown]  # another thread may add a page meanwhile
        shown = ((folder.root, one) for folder in reversed(folders) for one in folder.written.values())
        return next((root / one.src for root, one in shown if one.src == src), None)

    def decide(self, decisions: Sequence[Decision]) -> Sorted:
        """Store decisions about rows of this version; return which were, and which were not."""
        with self._lock:
            apart = self.cards.sort(decisions)
            write_decisions(self.tables.build.folder, apart.known)
        return apart

    def overview(self, name: str) -> Path | None:
        """Return a file of the charts, whose first page is asked for first.

        ``NotMadeYetError``: they are being made, from the first call on; ask again.
        """
        with self._lock:
            if self._overview is None and name == "index.html":
                self._overview = Future()
                # In a daemon: who ends the server does not wait for it.
                threading.Thread(target=self._make_overview, args=[self._overview], daemon=True).start()
        if self._overview is None:
            return None
        if not self._overview.done():
            raise NotMadeYetError
        return self._overview.result().get(name)

    @property
    def is_busy(self) -> bool:
        """Say whether charts are being made."""
        return self._overview is not None and not self._overview.done()

    def _make_overview(self, found: Future[dict[str, Path]]) -> None:
        """Write the charts; the build's ledger, which they ask, is asked by nothing else meanwhile."""
        place = self.scratch / "overview"
        try:
            place.mkdir()
            write_report(self.tables.build, place, subject=replace(self.subject, pairs=0, back="../"))
            found.set_result({str(one.relative_to(place)): one for one in place.rglob("*") if one.is_file()})
        except Exception as error:  # noqa: BLE001  (of another thread: who asks next hears it)
            found.set_exception(StoreError(f"the charts cannot be made: {error}"))


def _query(search: Search, **changes: Any) -> str:
    return urlencode(search.model_copy(update=changes).model_dump(exclude_defaults=True))
