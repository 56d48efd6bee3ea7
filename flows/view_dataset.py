"""Serve the pages of a dataset on this machine: open a version, make the table of its cards, and listen."""

import contextlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from pairwright.flows.report_dataset import subject_of
from pairwright.flows.version import Version
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.report.browse_pages import BrowsePages
from pairwright.tasks.report.card_table import TABLES, make_cards
from pairwright.tasks.report.search_cards import CardSearch
from pairwright.tasks.report.serve_pages import Keys, listen, serve
from pairwright.tasks.report.tables import Tables, open_database
from pairwright.tasks.store.scratch import own_temporary_folder, scratch_folder

CACHE = "cache/cards"


def view_dataset(
    found: Version,
    *,
    port: int,
    ready: Callable[[str, str], None],
    watch: Callable[[int, int], None],
) -> bool:
    """Serve the pages of a version on 127.0.0.1 until Ctrl-C; say whether a thread was at work still.

    Once pages are served, ``ready`` hears the address, token and all, and one that is good for one visit.
    """
    folder = found.folder
    with ExitStack() as stack:
        listener = stack.enter_context(listen(port))
        build, stages = stack.enter_context(found.settled())
        counts = [count for _, count in stages]
        scratch = stack.enter_context(scratch_folder(own_temporary_folder()))
        tables = Tables(build)
        cache = Path(folder.path(CACHE)) if folder.is_local else scratch
        rows = sum(count.rows for count in counts if count.stage in TABLES)
        file = make_cards(tables, cache, scratch, watch=lambda done: watch(done, rows))
        cards = CardSearch(stack.enter_context(open_database(str(file.path), scratch, read_only=True)))
        if not cards.count():
            raise ConfigError(f"{folder.url}: has nothing to look at: no pairs, no preferences (`pairwright status`)")
        subject = subject_of(found, build, counts=counts, pairs=0)
        pages = BrowsePages(tables=tables, file=file, cards=cards, subject=subject, scratch=scratch)
        keys = Keys(int(listener.getsockname()[1]))
        ready(keys.url, keys.url_once)
        with contextlib.suppress(KeyboardInterrupt):
            serve(pages, keys, listener)
        return pages.is_busy
