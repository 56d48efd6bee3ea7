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

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from pairwright.tasks.store.build import Build
from pairwright.tasks.store.ledger import Counts

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
    held: Sequence[
        str
    ] = ()  # failed gates of this build, or of one after the version shown, with the measured values
    decisions: Decisions = UNDECIDED

    @property
    def caveat(self) -> str:
        """Return the limitation of the vectors used in mining; empty: none is known, or no pairs were mined."""
        mined = any(one.stage == "neighbours" and one.of for one in self.counts)
        return self.profile.caveat if mined else ""

    @property
    def source(self) -> str:
        """Return the source of the images; of a folder only the last name, since reports are passed on."""
        source = self.profile.sources
        return (
            "rendered scenes"
            if source.kind == "scenes"
            else f"{source.kind} {Path(source.path).name}".strip()
        )


def write_report(build: Build, folder: Path, *, subject: Subject) -> int:
    """Write all pages into an empty folder, and return the number of pairs shown; the build's stages are settled."""
    tables = Tables(build)
    environment = gather_cards.make_card_environment()
    keys = sample_pairs(tables, subject.pairs)
    starts = range(0, len(keys), PAIRS_PER_PAGE)
    names = tuple(f"pairs-{number}.html" for number in range(1, len(starts) + 1))
    pictures = PictureFolder(folder)
    first: list[PairView] = []
    singles = gather_cards.gather_preferences(tables, pictures, subject.decisions)
    in_full = PREFERENCES if any(one.removals for one in singles) else ""
    frame: dict[str, Any] = {
        "subject": subject,
        "pages": names,
        "shown": len(keys),
        "worded": tables.has("differences"),
        "singles": singles,
        "in_full": in_full,
    }
    for name, start in zip(names, starts, strict=True):
        part = keys[start : start + PAIRS_PER_PAGE]
        told: dict[str, Any] = {
            "page": name,
            "first_number": start + 1,
            "decisions": subject.decisions,
        }
        views = list(gather_cards.gather_pairs(tables, part, pictures=pictures, **told))
        first += views[: SHOWN_FIRST - len(first)]
        write_page(
            folder / name,
            environment.get_template("pairs.html.j2").render(**frame, here=name, pairs=views),
        )
    if in_full:
        write_page(
            folder / in_full,
            environment.get_template("preferences.html.j2").render(**frame, here=in_full),
        )
    index = environment.get_template("index.html.j2").render(
        **frame,
        here="index.html",
        pairs=first,
        measures=measure_dataset(tables),
        health=measure_health(tables, subject.profile.health),
        removals=measure_removals(tables),
        writing=measure_writing(tables, subject.counts),
        totals={one.stage: one.rows for one in subject.counts},
        owed=sum(one.failed + one.pending for one in subject.counts),
    )
    copy_looks(folder, [HERE / name for name in FILES])
    write_page(folder / "index.html", index)
    return len(keys)


def sample_pairs(tables: Tables, number: int) -> list[str]:
    """Return the keys of at most ``number`` pairs: a fixed sample, even over splits and their similarities."""
    if not number or not tables.has("pairs"):
        return []
    query = """WITH ranked AS (SELECT key, count(*) OVER () AS total,
            row_number() OVER (ORDER BY split NULLS FIRST, similarity, key) - 1 AS place
            FROM pairs LEFT JOIN splits ON subject::VARCHAR = key)
        SELECT key FROM ranked QUALIFY row_number() OVER (PARTITION BY place * least(?, total) // total
            ORDER BY hash(key)) = 1"""
    found = tables.ask(
        query, {"pairs": ["key", "similarity"], "splits": ["subject", "split"]}, [number]
    )
    # Keys are hashes: ordering by another part of them mixes the pairs reproducibly.
    return sorted((key for (key,) in found), key=lambda key: key[8:])
