"""Write the report of a version of a dataset, or serve its pages on this machine."""

import contextlib
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pairwright.flows.versions.version import Version
from pairwright.schemas.decisions import MOST_NAME
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.report.browse_pages import BrowsePages
from pairwright.tasks.report.card_table import TABLES, make_cards
from pairwright.tasks.report.explore_pages import Workshop
from pairwright.tasks.report.query_tables import PREFERENCES, Tables, open_database
from pairwright.tasks.report.search_cards import CardSearch
from pairwright.tasks.report.serve_pages import Keys, Opening, listen, serve_pages
from pairwright.tasks.report.write_report import Subject, write_report
from pairwright.tasks.store.decision_table import read_decisions
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.gates import read_verdict
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.open_tables import Build
from pairwright.tasks.store.scratch import own_temporary_folder, replacing, scratch_folder
from pairwright.tasks.store.snapshot import describe_version

REPORT = "report"
INDEX = "index.html"


@dataclass(frozen=True, kw_only=True)
class ReportPages:
    """Pages of a report."""

    page: str
    pairs: int


def report_dataset(version: Version, *, pairs: int) -> ReportPages:
    """Replace the dataset's report by one about a version."""
    folder = version.folder
    page = f"{REPORT}/{INDEX}"
    with version.resolved() as (build, stages):
        counts = [count for _, count in stages]
        subject = subject_of(version, build, counts=counts, pairs=pairs)
        if folder.is_local:
            with replacing(Path(folder.path(REPORT))) as target:
                shown = write_report(build, target, subject=subject)
                build.check_removals()
            return ReportPages(page=folder.path(page), pairs=shown)
        with tempfile.TemporaryDirectory(prefix="pairwright-") as target:
            shown = write_report(build, Path(target), subject=subject)
            build.check_removals()
            _upload(Path(target), folder)
    return ReportPages(page=f"{folder.url.rstrip('/')}/{page}", pairs=shown)


def subject_of(version: Version, build: Build, *, counts: Sequence[Counts], pairs: int) -> Subject:
    """Return the subject of pages about an opened version."""
    folder = version.folder
    verdict = read_verdict(folder)
    created = version.snapshot.content.get("created", "") if version.snapshot else ""
    return Subject(
        name=folder.path("").rstrip("/").rpartition("/")[2] or folder.url,
        version=describe_version(build),
        made=str(created)[:10],
        counts=counts,
        profile=version.profile,
        pairs=pairs,
        held=verdict.why if verdict and verdict.held else [],
        decisions=read_decisions(folder),
    )


def _upload(pages: Path, folder: Folder) -> None:
    """Copy the pages to a store without renaming: the first page last, then delete leftovers."""
    names = sorted(str(path.relative_to(pages)) for path in pages.rglob("*") if path.is_file())
    for name in sorted(names, key=lambda name: name == INDEX):
        folder.write(f"{REPORT}/{name}", (pages / name).read_bytes())
    for prefix in ("", "images/"):
        for name in folder.names(f"{REPORT}/{prefix}".rstrip("/")):
            if f"{prefix}{name}" not in names:
                folder.delete(f"{REPORT}/{prefix}{name}")


def view_dataset(
    version: Version,
    *,
    port: int,
    annotator: str,
    ready: Callable[[str, str], None],
    watch: Callable[[int, int], None],
) -> bool:
    """Serve the pages of a version on 127.0.0.1 until Ctrl-C.

    Return whether a thread was still running. Once pages are served, ``ready`` is called with the
    address, which has the token, and one for a single visit.
    """
    if len(annotator) > MOST_NAME or not annotator.isprintable():
        raise ConfigError(f"--annotator: a name of at most {MOST_NAME} printable characters")
    with ExitStack() as stack:
        listener = stack.enter_context(listen(port))
        build, stages = stack.enter_context(version.resolved())
        counts = [count for _, count in stages]
        scratch = stack.enter_context(scratch_folder(own_temporary_folder()))
        tables = Tables(build)
        if not any(count.rows for count in counts if count.stage in ("pairs", *PREFERENCES)):
            raise ConfigError(
                f"{version.folder.url}: has nothing to look at: no pairs, no preferences "
                "(`pairwright status`)"
            )
        subject = subject_of(version, build, counts=counts, pairs=0)
        rows = sum(count.rows for count in counts if count.stage in TABLES)

        def make_pages(workshop: Workshop) -> BrowsePages:
            database = stack.enter_context(open_database(str(scratch / "cards.duckdb"), scratch))
            cards = CardSearch(database)
            make_cards(tables, cards.database, watch=lambda done: watch(done, rows))
            return BrowsePages(
                tables=tables,
                cards=cards,
                subject=subject,
                scratch=scratch,
                workshop=workshop,
                annotator=annotator,
            )

        keys = Keys(int(listener.getsockname()[1]))
        opening = Opening(make_pages, keys, build.check_removals)
        ready(keys.page_url(keys.entry), keys.page_url(next(iter(keys.once))))
        with contextlib.suppress(KeyboardInterrupt):
            serve_pages(opening, keys, listener)
        return opening.workshop.is_busy
