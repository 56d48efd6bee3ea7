"""Write README.md of a finished model: the Hub's YAML, then a description in plain words.

Reads the run's folder, its rows' licences and the card of its start model. Contains no local paths,
since models are shared.
"""

from collections import Counter
from itertools import zip_longest
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData, metadata_load

from pairwright.schemas.section import find_changes
from pairwright.schemas.training import NAMC, STAND_INS, TrainConfig
from pairwright.tasks.models.weights import is_local
from pairwright.tasks.store.manifest import README
from pairwright.tasks.training.find_model import ADAPTERS
from pairwright.tasks.training.freeze_rows import FrozenRows
from pairwright.tasks.training.report.draw_run import arrange
from pairwright.tasks.training.report.find_alarms import held_out_accuracy, say_proportion
from pairwright.tasks.training.report.write_run_page import list_totals
from pairwright.tasks.training.runs import MetricsFile, Run

TEMPLATE = Path(__file__).with_name("model_card.md.j2")
TASK = "image-text-to-text"
UNSTATED, RANDOM = "not stated", "random weights"
LICENCE = ("license", "license_name", "license_link")  # licence fields of a card


def write_model_card(
    folder: Path, run: Run, *, config: TrainConfig, rows: FrozenRows, metrics: MetricsFile
) -> None:
    """Write the card of a finished model; ``rows`` are its training rows."""
    data, logged = run.data(), arrange(metrics.entries)
    name, dataset = (
        run.folder.name,
        str(data.get("dataset", rows.folder.url)).rstrip("/").rsplit("/", 1)[-1],
    )
    # Mixed-in files state no licence.
    stated = (
        pair for row in rows.read_texts() for pair in zip_longest(row.image_keys, row.licences)
    )
    licences = Counter({key: licence or UNSTATED for key, licence in stated}.values())
    own, start = config.model.name, data.get("start", {}).get("folder", "")
    base = (
        RANDOM
        if config.objective == NAMC or own in STAND_INS
        else Path(own).name
        if is_local(own)
        else own
    )
    is_named = base == own  # on the Hub
    kind = (
        "namc"
        if config.objective == NAMC
        else "adapter"
        if (folder / ADAPTERS).exists()
        else "finetune"
    )
    licence: dict[str, Any] = _read_licence(Path(start)) if start else {}
    if base == RANDOM and not licence and len(licences) == 1 and UNSTATED not in licences:
        licence = {"license": "other", "license_name": next(iter(licences)).lower()}
    licence.setdefault("license", "unknown")
    ranked = held_out_accuracy(logged)
    result = EvalResult(
        task_type=TASK,
        dataset_type="pairwright",
        dataset_name=dataset,
        metric_type="accuracy",
        metric_value=ranked.value if ranked else None,
        metric_name=f"held-out preferences ranked right: {say_proportion(ranked)}"
        if ranked
        else "",
    )
    usual, given = (
        one.model_dump(mode="json") for one in (TrainConfig(objective=config.objective), config)
    )
    settings = [
        (name, value)
        for name, _, value in find_changes(usual, given)
        if not name.startswith(("output.", "model.name", "model.revision"))
        and not {"/", "\\"} & set(value)
    ]
    told = ModelCardData(
        **licence,
        base_model=base if is_named else None,
        base_model_relation=kind if is_named else None,
        library_name={"namc": "pairwright", "adapter": "peft"}.get(kind, "transformers"),
        pipeline_tag=TASK,
        tags=["image-difference", config.objective, "pairwright"],
        model_name=name,
        eval_results=[result] if ranked else None,
    )
    card = ModelCard.from_template(
        told,
        str(TEMPLATE),
        name=name,
        kind=kind,
        base=base,
        config=config,
        dataset=dataset,
        data=data,
        count=len(rows),
        totals=list(list_totals(logged)),
        settings=settings,
        licences=licences.most_common(),
    )
    (folder / README).write_text(f"{card.content}\n", encoding="utf-8")


def _read_licence(start: Path) -> dict[str, Any]:
    try:
        card = metadata_load(start / README) or {}
    except (OSError, ValueError, yaml.YAMLError):
        card = {}
    known = {name: card[name] for name in LICENCE if isinstance(card.get(name), str)}
    return {} if known.get("license") == "unknown" else known
