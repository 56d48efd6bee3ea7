"""Write README.md of an export: the YAML for the Hugging Face Hub, then a description."""

import re
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
MARKDOWN = re.compile(r"[\\`*_{}\[\]<>#|]")
"""Characters with a meaning in Markdown or its tables."""
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def write_readme(folder: Path, form: Form, dataset: ExportedDataset, tally: Tally) -> str:
    """Return the text of README.md: the form's own, or the common one."""
    if form.card:
        return form.card(folder, dataset, tally)
    use = form.use.replace("NAME", plain_name(dataset.name)).strip()
    front = _front(dataset, tally)
    if "license_name" in front:
        front["license_name"] = "see-below"  # only hf has them by row
    return _fill("readme.md.j2", front, dataset, tally, form=form, use=use)


def write_card(
    folder: Path,
    dataset: ExportedDataset,
    tally: Tally,
    *,
    features: list[dict[str, Any]],
    columns: Mapping[str, str],
) -> str:
    """Return the card of an export with these columns; write the images of its example."""
    front = _front(dataset, tally, {"task_categories": ["image-text-to-text"]})
    sizes = {split: tally.sizes[split] for split in SPLITS if split in tally.sizes}
    files = [{"split": split, "path": f"data/{split}-*.parquet"} for split in sizes]
    front["configs"] = [{"config_name": "default", "data_files": files}]
    front["dataset_info"] = _dataset_info(sizes, features)
    stages = {stage.stage for stage in dataset.counts}
    return _fill(
        "card.md.j2",
        front,
        dataset,
        tally,
        columns=columns,
        pictures=_write_example(folder, tally),
        empty=[split for split in SPLITS if split not in tally.sizes],
        was_mined="neighbours" in stages,
        inpainter=FILLERS.get(dataset.profile.removals.inpainter, ""),
        is_rendered=dataset.profile.source_config.kind == "scenes",
    )


def _dataset_info(
    sizes: Mapping[str, tuple[int, int]], features: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the card's features and sizes of splits."""
    splits: list[dict[str, Any]] = []
    for split, (rows, size) in sizes.items():
        splits.append({"name": split, "num_bytes": size, "num_examples": rows})
    total = sum(size for _, size in sizes.values())
    return {
        "features": features,
        "splits": splits,
        "download_size": total,
        "dataset_size": total,
    }


def _write_example(folder: Path, tally: Tally) -> list[str]:
    """Write the images of the example; return their paths below the folder."""
    (folder / ASSETS).mkdir()
    if tally.example is None:
        return []
    names: list[str] = []
    for name, image in name_images(tally.example).items():
        path = f"{ASSETS}/{name}"
        (folder / path).write_bytes(image)
        names.append(path)
    return names


def _fill(
    template: str,
    front: Mapping[str, Any],
    dataset: ExportedDataset,
    tally: Tally,
    **values: Any,
) -> str:
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
    title = "how similar images differ" if tally.pairs else "answers about images"
    return environment.get_template(template).render(
        front=yaml_text,
        title=title,
        key=plain_name(dataset.name),
        about=dataset,
        tally=tally,
        **values,
    )


def _front(
    dataset: ExportedDataset, tally: Tally, more: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the YAML fields of every export; ``more`` precedes the tags."""
    tags: list[str] = []
    if tally.pairs:
        tags.append("image-difference")
    if tally.rejected_texts or tally.rejected_images:
        tags += ["preference", "dpo"]
    tags += ["synthetic", "pairwright"]
    return {
        "pretty_name": dataset.name,
        **_licence(tally),
        **more,
        "tags": tags,
        "size_categories": [_size_category(tally.rows)],
    }


def _size_category(rows: int) -> str:
    """Return the Hub's name of a number of rows."""
    for limit, name in SIZES:
        if rows < limit:
            return name
    return "1M<n<10M"


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
    escaped = MARKDOWN.sub(r"\\\g<0>", str(text))
    return " ".join(escaped.split())
