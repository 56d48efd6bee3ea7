"""Write the card of an exported dataset: README.md with the YAML that the Hugging Face Hub reads, then plain words."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from schemas.config import Profile
from schemas.rows import PreferenceRow
from tasks.export.hf_schema import COLUMNS, card_features
from tasks.store.ledger import Counts

SPLITS = ("train", "validation", "test")
LICENCES = ("apache-2.0", "cc0-1.0", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0", "cc-by-nc-sa-4.0", "mit", "odc-by")
"""Licences that the Hub knows by name; another one is "other", none stated "unknown"."""
INPAINTERS = {"telea": "OpenCV, telea", "navier-stokes": "OpenCV, navier-stokes", "lama": "LaMa"}
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


@dataclass(frozen=True, kw_only=True)
class About:
    """Say which dataset is exported."""

    name: str
    version: str
    """"version 3", or what it is instead."""
    counts: Sequence[Counts]
    profile: Profile
    numbers: Sequence[str] = ()
    """What was measured of the whole dataset's texts, a sentence each."""
    mined_by: str = ""
    """The training run whose retriever mined the rejected texts; empty: they are those that the dataset was built
    with."""


@dataclass
class Tally:
    """Count what passes by while rows are written."""

    sizes: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Rows and bytes of each split that has any."""
    images: set[bytes] = field(default_factory=set[bytes])
    """Keys of the images that were counted: about 100 bytes of memory per image."""
    licences: Counter[str] = field(default_factory=Counter[str])
    """Images under each licence, one that is in several pairs counted once; so with sources."""
    sources: Counter[str] = field(default_factory=Counter[str])
    writers: Counter[str] = field(default_factory=Counter[str])
    makers: Counter[str] = field(default_factory=Counter[str])
    rejected_texts: int = 0
    rejected_images: int = 0
    crops: int = 0
    """Rows whose rejected image is a random crop."""
    rows: int = 0
    pairs: int = 0
    """Rows about two images; the others are about one."""
    left_out: int = 0
    """Rows that were not selected."""
    left_out_licences: set[str] = field(default_factory=set[str])
    left_out_sources: set[str] = field(default_factory=set[str])

    def leave_out(self, row: PreferenceRow) -> None:
        """Count a row that is not exported."""
        self.left_out += 1
        self.left_out_licences.update(row.licences)
        self.left_out_sources.update(row.sources)

    def add(self, row: PreferenceRow) -> None:
        """Count one row."""
        self.rows += 1
        self.pairs += len(row.images) > 1
        self._add_images(row)
        self.writers[row.chosen_model] += 1
        self.rejected_texts += bool(row.rejected)
        self.rejected_images += bool(row.rejected_images)
        self.crops += row.rejected_image_maker == "crop"
        if row.rejected:
            self.makers[row.rejected_maker] += 1

    def _add_images(self, row: PreferenceRow) -> None:
        for key, licence, source in zip(row.image_keys, row.licences, row.sources, strict=True):
            name = bytes.fromhex(key)
            if name not in self.images:
                self.images.add(name)
                self.licences[licence] += 1
                self.sources[source] += 1


def write_card(about: About, tally: Tally) -> str:
    """Return the text of README.md."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Markdown, not HTML: its own filter escapes
    )
    environment.filters["md"] = escape_markdown
    return environment.get_template("card.md.j2").render(
        front=yaml.safe_dump(_front_matter(about, tally), sort_keys=False, allow_unicode=True).strip(),
        about=about,
        tally=tally,
        columns=COLUMNS,
        empty=[split for split in SPLITS if split not in tally.sizes],
        was_mined="neighbours" in {stage.stage for stage in about.counts},
        inpainter=INPAINTERS[about.profile.removals.inpainter],
        is_rendered=about.profile.sources.kind == "scenes",
    )


def _front_matter(about: About, tally: Tally) -> dict[str, object]:
    sizes = {split: tally.sizes[split] for split in SPLITS if split in tally.sizes}
    total = sum(size for _, size in sizes.values())
    return {
        "pretty_name": about.name,
        **_licence(tally),
        "task_categories": ["image-text-to-text"],
        "tags": [*["image-difference"] * bool(tally.pairs), "preference", "dpo", "synthetic", "pairwright"],
        "size_categories": [next((name for below, name in SIZES if tally.rows < below), "1M<n<10M")],
        "configs": [
            {
                "config_name": "default",
                "data_files": [{"split": split, "path": f"data/{split}-*.parquet"} for split in sizes],
            }
        ],
        "dataset_info": {
            "features": card_features(),
            "splits": [
                {"name": split, "num_bytes": size, "num_examples": rows} for split, (rows, size) in sizes.items()
            ],
            "download_size": total,
            "dataset_size": total,
        },
    }


def _licence(tally: Tally) -> dict[str, str]:
    """Return the Hub's licence fields: one name where all images share a licence that it knows."""
    names = sorted(tally.licences)
    if not all(names):
        return {"license": "unknown"}
    if len(names) == 1 and names[0].lower() in LICENCES:
        return {"license": names[0].lower()}
    return {"license": "other", "license_name": "see-column-licences"}


def escape_markdown(text: object) -> str:
    """Return a text that Markdown and its tables show as it is, on one line."""
    escaped = "".join(f"\\{c}" if c in r"\`*_{}[]<>#|" else c for c in str(text))
    return " ".join(escaped.split())
