"""Write the calibration page: thresholds of mining are chosen by looking at pairs, not by trusting numbers.

DIR/calibrate/
  index.html         histograms and yields per encoder, contact sheets per bin of similarity, buttons to judge pairs
  report.css, report.js, calibrate.css, calibrate.js
  images/            thumbnails of the sampled pairs (JPEG)

Reads ``neighbours``, ``pairs`` and of ``images`` those that are shown. The neighbours are read three times, a row group
at a time, so that memory does not grow with their number: a million candidates take 1.5 s and 55 MB (of one core). The
same dataset gives the same page.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from pairwright.schemas.config import MiningConfig
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import ImageRow, NeighbourRow, PairRow, make_key
from pairwright.tasks.pages.environment import copy_looks, make_environment, write_page
from pairwright.tasks.report.calibrate_bins import (
    Bin,
    Sampled,
    Sampler,
    Spread,
    band_of,
    choose_grid,
    cut_bins,
    measure_spread,
    show_number,
)
from pairwright.tasks.report.calibrate_candidates import Images, read_images, stream_candidates, stream_similarities
from pairwright.tasks.report.calibrate_chart import BOTTOM, HEIGHT, LEFT, RIGHT, WIDTH, draw_spread, share_in_band
from pairwright.tasks.report.calibrate_views import BinView, CaseView, SheetView, SideView, view_yields
from pairwright.tasks.report.calibrate_yield import count_yields
from pairwright.tasks.report.tables import Tables
from pairwright.tasks.report.write_images import FOLDER, Picture
from pairwright.tasks.report.write_report import HERE
from pairwright.tasks.store.dataset import Build
from pairwright.tasks.store.images import decode_rgb

FILES = ("report.js", "calibrate.css", "calibrate.js")
SIDE = 288
"""Longest side of a thumbnail in pixels: what a card shows on a screen of two pixels per point, nearly."""
QUALITY = 80
AT_ONCE = 32
"""Images decoded from one read."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Say which dataset is looked at, and how closely."""

    name: str
    version: str
    made: str
    dataset: str
    """As the command line has it, quoted for a shell: for the commands that the page gives."""
    ident: str
    """Under which the browser keeps the judgements."""
    mining: MiningConfig
    neighbours: int
    """How many were searched per image and embedder."""
    per_bin: int
    width: float


@dataclass(frozen=True)
class Calibration:
    """Say what the page shows."""

    pairs: int
    """Different pairs to judge."""
    bins: int


def write_calibration(build: Build, folder: Path, *, subject: Subject) -> Calibration:
    """Write the page into an empty folder; the build's stages are settled.

    Raises:
        ConfigError: no neighbours were found.
    """
    tables, band = Tables(build), band_of(subject.mining)
    spreads = measure_spread(stream_similarities(tables), band)
    if not any(spread.total for spread in spreads.values()):
        raise ConfigError(
            f"{subject.name}: no image has a neighbour yet (table neighbours): look at `pairwright status "
            f"{subject.dataset}`, finish with `pairwright resume {subject.dataset}`; two images are the least"
        )
    names, images = tuple(spreads), read_images(tables)
    grid = choose_grid(spreads.values(), band)
    yields = count_yields(
        stream_candidates(tables, names, images), names, grid, config=subject.mining, searched=subject.neighbours
    )
    sheets = _sheets(tables, spreads, folder=folder, images=images, subject=subject)
    shown = {case.pair for sheet in sheets for one in sheet.bins for case in one.cases}
    page = make_environment(HERE).get_template("calibrate.html.j2").render(
        subject=subject,
        here="calibrate",
        drawing={"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": RIGHT, "bottom": BOTTOM},
        pages=(),
        sheets=sheets,
        yields=view_yields(yields, grid, band, names),
        counted=yields,
        cuts=list(zip(names, yields.cut, strict=True)),
        band=tuple(show_number(value) for value in (band.low, band.high)),
        pairs=sum(map(len, tables.stream("pairs", ["key"]))) if tables.has("pairs") else None,
        shown=len(shown),
    )  # fmt: skip
    copy_looks(folder, [HERE / name for name in FILES])
    write_page(folder / "index.html", page)
    return Calibration(pairs=len(shown), bins=sum(len(sheet.bins) for sheet in sheets))


def _sheets(
    tables: Tables, spreads: dict[str, Spread], *, folder: Path, images: Images, subject: Subject
) -> list[SheetView]:
    """Draw the samples of all embedders in one reading, and return their sheets."""
    band = band_of(subject.mining)
    bins = [cut_bins(one, band, width=subject.width, least=2 * subject.per_bin) for one in spreads.values()]
    samplers = [Sampler(one, images, per_bin=subject.per_bin) for one in bins]
    for batch in stream_candidates(tables, tuple(spreads), images):
        for number, sampler in enumerate(samplers):
            sampler.add(batch.of(batch.space == number))
    cases = gather_cases(tables, [one.sampled for one in samplers], images=images, folder=folder)
    return [
        SheetView(
            name=name,
            chart=draw_spread(name, spread, band),
            in_band=share_in_band(spread, band),
            total=spread.total,
            bins=tuple(_bins(number, bins[number], sampler=samplers[number], cases=cases[number])),
        )
        for number, (name, spread) in enumerate(spreads.items())
    ]


def _bins(number: int, bins: Sequence[Bin], *, sampler: Sampler, cases: Sequence[CaseView]) -> Iterator[BinView]:
    """Yield the bins, the most similar first."""
    of_bin = sampler.sampled.bin.tolist()
    for place in reversed(range(len(bins))):
        one = bins[place]
        yield BinView(
            id=f"bin-{number}-{place}",
            low=show_number(max(one.low, -1.0)),
            high=show_number(one.high),
            side=one.side,
            count=int(sampler.counts[place]),
            cases=tuple(case for case, own in zip(cases, of_bin, strict=True) if own == place),
        )


def gather_cases(tables: Tables, samples: Sequence[Sampled], *, images: Images, folder: Path) -> list[list[CaseView]]:
    """Return the sampled pairs of each embedder ready to be shown, their thumbnails written."""
    chosen = [
        [(images.key(a), images.key(b)) for a, b in zip(one.anchor.tolist(), one.other.tolist(), strict=True)]
        for one in samples
    ]
    everyone = {pair for pairs in chosen for pair in pairs}
    found = {row.subject: row for row in tables.find("neighbours", NeighbourRow, {anchor for anchor, _ in everyone})}
    keys = [make_key("pair", *sorted(pair)) for pair in everyone]
    paired = {row.key for row in tables.find("pairs", PairRow, keys)}
    sides = dict(write_thumbnails(tables, {key for pair in everyone for key in pair}, folder))
    return [[_case(pair, found[pair[0]], sides=sides, paired=paired) for pair in pairs] for pairs in chosen]


def _case(pair: tuple[str, str], found: NeighbourRow, *, sides: dict[str, SideView], paired: set[str]) -> CaseView:
    key = make_key("pair", *sorted(pair))
    spaces = zip(found.embedders, found.neighbours, found.similarities, strict=True)
    return CaseView(
        pair=key,
        sides=(sides[pair[0]], sides[pair[1]]),
        similarities=tuple(
            (name, _similarity(pair[1], neighbours, similarities)) for name, neighbours, similarities in spaces
        ),
        paired=key in paired,
    )


def _similarity(other: str, neighbours: Sequence[str], similarities: Sequence[float]) -> str:
    """Return the number, or what it is below where the other image is not among the nearest."""
    if other in neighbours:
        return f"{similarities[neighbours.index(other)]:.3f}"
    return f"below {similarities[-1]:.3f}" if similarities else "unknown"


def write_thumbnails(tables: Tables, keys: set[str], folder: Path) -> Iterator[tuple[str, SideView]]:
    """Write a small JPEG of each image; yield key and view."""
    (folder / FOLDER).mkdir(exist_ok=True)
    ordered = sorted(keys)
    for start in range(0, len(ordered), AT_ONCE):
        for row in tables.find("images", ImageRow, ordered[start : start + AT_ONCE], without=("graph",)):
            yield row.key, SideView(picture=_thumbnail(row, folder), name=row.name)


def _thumbnail(row: ImageRow, folder: Path) -> Picture:
    image = Image.fromarray(decode_rgb(row.image))
    image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    sink = io.BytesIO()
    image.save(sink, format="JPEG", quality=QUALITY, optimize=True)
    name = f"{FOLDER}/{row.key}.jpg"
    (folder / name).write_bytes(sink.getvalue())
    return Picture(name, *image.size)
