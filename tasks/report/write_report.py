"""Write a report: static pages of a dataset, which open from disk without a server or network.

DIR/report/
  index.html         what is in the dataset, its charts, its stages
  pairs-1.html ...   a sample of its pairs, ten to a page
  preferences.html   without pairs: a few preferences whose images lost an element
  report.css, pairs.css, report.js, decide.js
  images/            pictures of the sampled pairs and masks

Texts are never interpreted: templates escape them, and the pages' policy forbids external
resources.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment

from pairwright.schemas.config import Profile
from pairwright.schemas.decisions import UNDECIDED, Decisions
from pairwright.tasks.pages.environment import copy_looks, write_page
from pairwright.tasks.report import gather_cards
from pairwright.tasks.report.gather_cards import HERE, PairView
from pairwright.tasks.report.measure_dataset import measure_dataset, measure_removals
from pairwright.tasks.report.measure_health import measure_health
from pairwright.tasks.report.measure_writing import measure_writing
from pairwright.tasks.report.query_tables import Tables
from pairwright.tasks.report.write_images import PictureFolder
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.open_tables import Build

PAIRS_PER_PAGE = 10
SHOWN_FIRST = 6  # pairs shown small on the first page
FILES = ("report.js", "decide.js", "pairs.css")
PREFERENCES = "preferences.html"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Dataset of a report."""

    name: str
    version: str  # "version 3", or a description instead
    made: str
    counts: Sequence[Counts]
    profile: Profile
    pairs: int
    held: Sequence[str] = ()
    """Failed gates, with the measured values, of this build or of one after the version shown."""
    decisions: Decisions = UNDECIDED

    @property
    def caveat(self) -> str:
        """Return known limits: of the vectors used in mining, of checks; empty: none."""
        mined = any(counts.stage == "neighbours" and counts.of for counts in self.counts)
        limits = [self.profile.caveat if mined else "", self.profile.language_caveat]
        return ". ".join(limit for limit in limits if limit)

    @property
    def source(self) -> str:
        """Return the sources of the images.

        A folder is named by the last part of its path only, since reports are passed on.
        """
        names: list[str] = []
        for source in self.profile.all_sources:
            kind, _, path = source.partition(":")
            if kind == "scenes":
                names.append("rendered scenes")
            else:
                names.append(f"{kind} {Path(path).name}".strip())
        return ", ".join(names)


def write_report(
    build: Build,
    folder: Path,
    *,
    subject: Subject,
) -> int:
    """Write all pages into an empty folder, and return the number of pairs shown.

    The build's stages are resolved.
    """
    tables = Tables(build)
    pictures = PictureFolder(folder)
    keys = sample_pairs(tables, subject.pairs)
    pages = _split_pages(keys)
    singles = gather_cards.gather_preferences(tables, pictures, subject.decisions)
    has_removals = any(single.removals for single in singles)
    frame: dict[str, Any] = {
        "subject": subject,
        "pages": tuple(pages),
        "shown": len(keys),
        "worded": tables.has_table("differences"),
        "singles": singles,
        "in_full": PREFERENCES if has_removals else "",
    }
    writer = PageWriter(folder, gather_cards.make_card_environment(), frame)
    first = _write_pairs(writer, tables, pages, pictures=pictures, decisions=subject.decisions)
    if has_removals:
        writer.add_page("preferences.html.j2", PREFERENCES)
    copy_looks(folder, [HERE / name for name in FILES])
    measures = _measure(tables, subject)
    writer.add_page("index.html.j2", "index.html", pairs=first, **measures)
    return len(keys)


@dataclass(frozen=True)
class PageWriter:
    """Writer of pages with a common frame."""

    folder: Path
    environment: Environment
    frame: Mapping[str, Any]

    def add_page(self, template: str, name: str, **content: Any) -> None:
        """Render a template into the page of a name."""
        text = self.environment.get_template(template).render(
            **self.frame,
            here=name,
            **content,
        )
        write_page(self.folder / name, text)


def _split_pages(keys: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return the pairs of each page by the page's name."""
    pages: dict[str, Sequence[str]] = {}
    for start in range(0, len(keys), PAIRS_PER_PAGE):
        pages[f"pairs-{len(pages) + 1}.html"] = keys[start : start + PAIRS_PER_PAGE]
    return pages


def _write_pairs(
    writer: PageWriter,
    tables: Tables,
    pages: Mapping[str, Sequence[str]],
    *,
    pictures: PictureFolder,
    decisions: Decisions,
) -> list[PairView]:
    """Write the pages of pairs, and return the pairs to show on the first page."""
    first: list[PairView] = []
    first_number = 1
    for page, keys in pages.items():
        pairs = gather_cards.gather_pairs(
            tables,
            keys,
            pictures=pictures,
            first_number=first_number,
            page=page,
            decisions=decisions,
        )
        views = list(pairs)
        first_number += len(views)
        first += views[: SHOWN_FIRST - len(first)]
        writer.add_page("pairs.html.j2", page, pairs=views)
    return first


def _measure(tables: Tables, subject: Subject) -> dict[str, Any]:
    """Return the measurements on the first page by their names in the template."""
    return {
        "measures": measure_dataset(tables),
        "health": measure_health(tables, subject.profile.health),
        "removals": measure_removals(tables),
        "writing": measure_writing(tables, subject.counts),
        "totals": {counts.stage: counts.rows for counts in subject.counts},
        "unfinished": sum(counts.failed + counts.pending for counts in subject.counts),
    }


def sample_pairs(tables: Tables, number: int) -> list[str]:
    """Return the keys of at most ``number`` pairs.

    The sample is fixed, and even over splits and their similarities.
    """
    if not number or not tables.has_table("pairs"):
        return []
    query = """WITH ranked AS (SELECT key, count(*) OVER () AS total,
            row_number() OVER (ORDER BY split NULLS FIRST, similarity, key) - 1 AS place
            FROM pairs LEFT JOIN splits ON subject::VARCHAR = key)
        SELECT key FROM ranked QUALIFY row_number() OVER (
            PARTITION BY place * least(?, total) // total ORDER BY hash(key)) = 1"""
    columns = {"pairs": ["key", "similarity"], "splits": ["subject", "split"]}
    keys = [key for (key,) in tables.query(query, columns, [number])]
    # Keys are hashes: ordering by another part of them mixes the pairs reproducibly.
    return sorted(keys, key=lambda key: key[8:])
