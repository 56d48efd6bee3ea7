"""Write README.md of a finished model: the Hub's YAML, then a description in plain words.

Reads the run's folder, its rows' licences and the card of its start model. Contains no local paths,
since models are shared.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData, metadata_load

from pairwright.schemas.section import find_changes
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.store.manifest import README
from pairwright.tasks.training.freeze_rows import FrozenRows
from pairwright.tasks.training.report.draw_run import Metrics, arrange
from pairwright.tasks.training.report.find_alarms import held_out_accuracy, say_proportion
from pairwright.tasks.training.report.write_run_page import list_totals
from pairwright.tasks.training.runs import MetricsFile, Run

TEMPLATE = Path(__file__).with_name("model_card.md.j2")
TASK = "image-text-to-text"
UNSTATED = "not stated"
RANDOM = "random weights"
LICENCE = ("license", "license_name", "license_link")  # licence fields of a card
LIBRARIES = {"namc": "pairwright", "adapter": "peft", "finetune": "transformers"}
LOCAL = ("output.", "model.name", "model.revision")
"""Prefixes of settings that are not listed: they say nothing, or name a local path."""


@dataclass(frozen=True, kw_only=True)
class CardModel:
    """Finished model, for its card."""

    kind: Literal["namc", "adapter", "finetune"]
    base: str = RANDOM  # name of the model that it was trained from
    on_hub: bool = False  # whether ``base`` is a name on the Hub
    max_pixels: int = 0  # most pixels of an image that it was trained with
    has_grid: bool = False  # whether its processor holds this bound


def write_model_card(
    folder: Path,
    run: Run,
    *,
    config: TrainConfig,
    rows: FrozenRows,
    metrics: MetricsFile,
    model: CardModel,
) -> None:
    """Write the card of a finished model; ``rows`` are its training rows."""
    data = run.data()
    logged = arrange(metrics.entries)
    dataset = _base_name(str(data.get("dataset", rows.folder.url)))
    licences = _count_licences(rows)
    start = data.get("start", {}).get("folder", "")
    metadata = ModelCardData(
        **_choose_licence(start, model, licences),
        base_model=model.base if model.on_hub else None,
        base_model_relation=model.kind if model.on_hub else None,
        library_name=LIBRARIES[model.kind],
        pipeline_tag=TASK,
        tags=["image-difference", config.objective, "pairwright"],
        model_name=run.folder.name,
        eval_results=_list_results(logged, dataset),
    )
    card = ModelCard.from_template(
        metadata,
        str(TEMPLATE),
        name=run.folder.name,
        kind=model.kind,
        base=model.base,
        config=config,
        dataset=dataset,
        data=data,
        count=len(rows),
        max_pixels=model.max_pixels,
        has_grid=model.has_grid,
        totals=list(list_totals(logged)),
        settings=list(_list_settings(config)),
        licences=licences.most_common(),
    )
    (folder / README).write_text(f"{card.content}\n", encoding="utf-8")


def _base_name(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1]


def _count_licences(rows: FrozenRows) -> Counter[str]:
    """Return the number of images per licence; mixed-in files state none."""
    licence_of_image = dict[str, str]()
    for row in rows.read_texts():
        for key, licence in zip_longest(row.image_keys, row.licences):
            licence_of_image[key] = licence or UNSTATED
    return Counter(licence_of_image.values())


def _choose_licence(start: str, model: CardModel, licences: Counter[str]) -> dict[str, Any]:
    """Return the start model's licence; for random weights, the one that all images have."""
    licence: dict[str, Any] = _read_licence(Path(start)) if start else {}
    if licence:
        return {"license": "unknown"} | licence
    if model.base == RANDOM and len(licences) == 1 and UNSTATED not in licences:
        (name,) = licences
        return {"license": "other", "license_name": name.lower()}
    return {"license": "unknown"}


def _read_licence(start: Path) -> dict[str, Any]:
    try:
        card = metadata_load(start / README) or {}
    except (OSError, ValueError, yaml.YAMLError):
        card = {}
    licence = {name: card[name] for name in LICENCE if isinstance(card.get(name), str)}
    return {} if licence.get("license") == "unknown" else licence


def _list_results(logged: Metrics, dataset: str) -> list[EvalResult] | None:
    """Return the held-out accuracy for the Hub's YAML; ``None``: nothing was ranked."""
    ranked = held_out_accuracy(logged)
    if not ranked:
        return None
    result = EvalResult(
        task_type=TASK,
        dataset_type="pairwright",
        dataset_name=dataset,
        metric_type="accuracy",
        metric_value=ranked.value,
        metric_name=f"held-out preferences ranked right: {say_proportion(ranked)}",
    )
    return [result]


def _list_settings(config: TrainConfig) -> Iterator[tuple[str, str]]:
    """Yield the settings that differ from the defaults, without local paths."""
    defaults = TrainConfig(objective=config.objective).model_dump(mode="json")
    for name, _, value in find_changes(defaults, config.model_dump(mode="json")):
        has_path = "/" in value or "\\" in value
        if not name.startswith(LOCAL) and not has_path:
            yield name, value
