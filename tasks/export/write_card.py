"""Write README.md of an export: the YAML for the Hugging Face Hub, then a description."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pairwright.tasks.export.form import SPLITS, Form, name_images, plain_name
from pairwright.tasks.export.tally_rows import ExportedDataset, Tally

LICENCES = (
    "apache-2.0",
    "cc0-1.0",
    "cc-by-4.0",
    "cc-by-sa-4.0",
    "cc-by-nc-4.0",
    "cc-by-nc-sa-4.0",
    "mit",
    "odc-by",
)
"""Licences that the Hub knows by name; others are "other", none is "unknown"."""
FILLERS = {"lama": "LaMa"}
ASSETS = "assets"  # folder of the images that the card shows
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def write_readme(folder: Path, form: Form, about: ExportedDataset, tally: Tally) -> str:
    """Return the text of README.md: the form's own, or the common one."""
    if form.card:
        return form.card(folder, about, tally)
    use = form.use.replace("NAME", plain_name(about.name)).strip()
    told = _front(about, tally)
    if "license_name" in told:
        told["license_name"] = "see-below"  # only hf has them by row
    return _fill("readme.md.j2", told, form=form, about=about, tally=tally, use=use)


def write_card(
    folder: Path,
    about: ExportedDataset,
    tally: Tally,
    *,
    features: list[dict[str, Any]],
    columns: Mapping[str, str],
) -> str:
    """Return the card of an export, given its ``columns`` in words; write the images of its example."""
    (folder / ASSETS).mkdir()
    shown = name_images(tally.example) if tally.example else {}
    pictures = {f"{ASSETS}/{name}": image for name, image in shown.items()}
    for name, image in pictures.items():
        (folder / name).write_bytes(image)
    sizes = {split: tally.sizes[split] for split in SPLITS if split in tally.sizes}
    total = sum(size for _, size in sizes.values())
    files = [{"split": split, "path": f"data/{split}-*.parquet"} for split in sizes]
    told = {
        **_front(about, tally, {"task_categories": ["image-text-to-text"]}),
        "configs": [{"config_name": "default", "data_files": files}],
        "dataset_info": {
            "features": features,
            "splits": [
                {"name": split, "num_bytes": size, "num_examples": rows}
                for split, (rows, size) in sizes.items()
            ],
            "download_size": total,
            "dataset_size": total,
        },
    }
    return _fill(
        "card.md.j2",
        told,
        about=about,
        tally=tally,
        columns=columns,
        pictures=list(pictures),
        empty=[split for split in SPLITS if split not in tally.sizes],
        was_mined="neighbours" in {stage.stage for stage in about.counts},
        inpainter=FILLERS.get(about.profile.removals.inpainter, ""),
        is_rendered=about.profile.sources.kind == "scenes",
    )


def _fill(template: str, front: Mapping[str, Any], **told: Any) -> str:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Markdown, not HTML: its own filter escapes
    )
    environment.filters["md"] = escape_markdown
    yaml_text = yaml.safe_dump(dict(front), sort_keys=False, allow_unicode=True).strip()
    about: ExportedDataset = told["about"]
    title = "how similar images differ" if told["tally"].pairs else "answers about images"
    return environment.get_template(template).render(
        front=yaml_text, title=title, key=plain_name(about.name), **told
    )


def _front(
    about: ExportedDataset, tally: Tally, more: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the YAML fields of every export; ``more`` precedes the tags."""
    rejecting = ["preference", "dpo"] if tally.rejected_texts or tally.rejected_images else []
    return {
        "pretty_name": about.name,
        **_licence(tally),
        **more,
        "tags": [*["image-difference"] * bool(tally.pairs), *rejecting, "synthetic", "pairwright"],
        "size_categories": [
            next((name for below, name in SIZES if tally.rows < below), "1M<n<10M")
        ],
    }


def _licence(tally: Tally) -> dict[str, str]:
    """Return the Hub's licence fields: one name if all images share a licence that it knows."""
    names = sorted(tally.licences)
    if not all(names):
        return {"license": "unknown"}
    if len(names) == 1 and names[0].lower() in LICENCES:
        return {"license": names[0].lower()}
    return {"license": "other", "license_name": "see-column-licences"}


def escape_markdown(text: object) -> str:
    """Return a text escaped for Markdown and its tables, on one line."""
    escaped = "".join(f"\\{c}" if c in r"\`*_{}[]<>#|" else c for c in str(text))
    return " ".join(escaped.split())
