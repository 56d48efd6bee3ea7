"""Write the page of an audit, DIR/audit/index.html: what texts and checks are worth.

Like a report it opens from disk.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from pairwright.schemas.checks import MEANINGS
from pairwright.tasks.audit.measure_audit import CheckWorth, Share, Worth
from pairwright.tasks.pages.charts import Chart, Line, draw_lines
from pairwright.tasks.pages.environment import copy_looks, make_environment, write_page

HERE = Path(__file__).parent
PAGE = "index.html"
MIN_POINTS = 3  # fewer thresholds make no curve


def write_audit_page(folder: Path, worth: Worth, *, name: str, profile: str) -> Path:
    """Rewrite the page of an audit, and return its path.

    ``name``: the dataset; ``profile``: the name of its profile.
    """
    folder.mkdir(parents=True, exist_ok=True)
    copy_looks(folder, [HERE / "audit.css"])
    template = make_environment(HERE).get_template("audit.html.j2")
    page = template.render(
        subject={"name": Path(name).name or name},
        profile=profile,
        worth=worth,
        measures=list(say_measures(worth)),
        meanings=MEANINGS,
        charts=[_draw_curve(check) for check in worth.checks if len(check.curve) >= MIN_POINTS],
        show_share=show_share,
    )
    write_page(folder / PAGE, page)
    return folder / PAGE


def show_share(share: Share) -> str:
    """Return a share with its interval: "81 % (74 to 87)"."""
    if share.value is None or share.interval is None:
        return "no such text"
    low, high = share.interval
    return f"{share.value:.0%} ({low:.0%} to {high:.0%}), {share.hits:,} of {share.of:,}"


def say_measures(worth: Worth) -> Iterator[tuple[str, str, str]]:
    """Yield the main measures: name, value, explanation."""
    yield (
        "Texts that are true",
        show_share(worth.written),
        "of all that the writer wrote, before any check",
    )
    yield (
        "Chosen texts that are true",
        show_share(worth.chosen),
        "of those that passed all checks: what the data is worth",
    )
    yield (
        "True texts kept",
        show_share(worth.true_kept),
        "by all checks together",
    )
    yield (
        "False texts kept",
        show_share(worth.false_kept),
        "by all checks together",
    )


def _draw_curve(check: CheckWorth) -> Chart:
    """Draw what each threshold of a check keeps."""
    thresholds = np.array([point.threshold for point in check.curve])
    true_kept = np.array([point.true_kept for point in check.curve])
    false_kept = np.array([point.false_kept for point in check.curve])
    low, high = float(thresholds[0]), float(thresholds[-1])
    return draw_lines(
        [
            Line(name="true texts", x=thresholds, y=true_kept, tone="plain"),
            Line(name="false texts", x=thresholds, y=false_kept, tone="rejected"),
        ],
        title=f"{check.setting}",
        unit="share of texts kept, by threshold",
        ends=(low, high if high > low else low + 1.0),
        reach=(0.0, 1.0),
        percent=True,
        legend=[("plain", "true texts", ""), ("rejected", "false texts", "")],
        heads=("threshold", "true texts kept", "false texts kept"),
        rows=_list_points(check),
        summary=f"Shares of true and of false texts that {check.setting} keeps",
    )


def _list_points(check: CheckWorth) -> Sequence[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    for point in check.curve:
        rows.append((f"{point.threshold:.4g}", f"{point.true_kept:.0%}", f"{point.false_kept:.0%}"))
    return rows
