"""The verbs that evaluate: captions against references, a model on a benchmark."""

import json
import signal
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from pairwright.flows.verbs import options
from pairwright.flows.verbs.options import app
from pairwright.schemas.errors import ConfigError

evaluate = typer.Typer(
    no_args_is_help=True,
    help="Score texts against references, and models on benchmarks.",
    epilog="Example: `pairwright evaluate captions predictions.jsonl references.json`",
)
app.add_typer(evaluate, name="evaluate")


@evaluate.command(
    epilog="Example: `pairwright evaluate captions predictions.jsonl references.json --protocol coco`"
)
def captions(
    predictions: Annotated[
        Path,
        Argument(
            help="One text per id: JSON Lines, JSON, COCO's results, or lists of texts by id."
        ),
    ],
    references: Annotated[
        Path, Argument(help="Texts per id: the same, COCO's annotations, or Spot-the-Diff's.")
    ],
    protocol: Annotated[
        str,
        Option(
            help="coco; spot-the-diff, spot-the-diff-records (single change), spot-the-diff-multi."
        ),
    ] = "coco",
    metric: Annotated[
        list[str] | None, Option(help="bleu, meteor, rouge-l, cider-d, spice (repeatable).")
    ] = None,
    missing: Annotated[
        str, Option(help="References without a prediction: refuse, empty, leave-out.")
    ] = "refuse",
    resamples: Annotated[
        int, Option(min=0, max=100_000, help="Bootstrap resamples for intervals; 0: none.")
    ] = 1000,
    as_json: options.AsJson = False,
) -> None:
    """Score captions: BLEU, METEOR, ROUGE-L, CIDEr-D, SPICE as coco-caption does, with bootstrap intervals.

    Metrics that lack Java or a download are skipped with the reason. Exits with 1 if a metric named
    by --metric was skipped.
    """
    from pairwright.flows.building.progress import show_steps
    from pairwright.tasks.evaluation.measured import CONFIDENCE
    from pairwright.tasks.evaluation.read_captions import match_captions, read_captions
    from pairwright.tasks.evaluation.score_captions import METRICS, ScoringConfig, score_captions

    config = ScoringConfig(tuple(dict.fromkeys(metric or METRICS)), resamples)
    matched = match_captions(
        read_captions(predictions), read_captions(references), protocol=protocol, missing=missing
    )
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # so that no Java program is left behind
    with show_steps("metrics") as progress:
        found = score_captions(matched, config, progress=progress)
    if as_json:
        about = {
            "protocol": protocol,
            "items": len(matched.items),
            "references": found.references,
            "left_out": {
                "blank_references": matched.blank,
                "items_without_references": matched.unreferenced,
            },
            "predictions": {"empty": matched.empty, "missing": matched.missing},
            "bootstrap": {"resamples": resamples, "seed": config.seed, "confidence": CONFIDENCE},
            "scores": {
                one.name: {"score": one.value, "low": one.low, "high": one.high}
                for one in found.scores
            },
            "skipped": found.skipped,
        }
        print(json.dumps(about, indent=1))
    else:
        shown = [
            (
                one.name,
                *(
                    "-" if share is None else f"{100 * share:.2f}"
                    for share in (one.value, one.low, one.high)
                ),
            )
            for one in found.scores
        ]
        skipped = [(name.upper(), "-", "skipped", "") for name in found.skipped]
        options.print_table(
            ["metric", ">x 100", f">{CONFIDENCE:.0%} from", ">to"], *shown, *skipped
        )
        print(f"{len(matched.items):,} items, {found.references:,} references; protocol {protocol}")
        for count, what in (
            (matched.missing, "references had no prediction"),
            (matched.empty, "predictions are empty"),
            (matched.blank, "blank references were left out"),
            (matched.unreferenced, "items with blank references only were left out"),
        ):
            if count:
                print(f"{count:,} {what}")
        for name, reason in found.skipped.items():
            print(f"{name} was skipped: {reason}")
    if metric and found.skipped:
        raise typer.Exit(options.OWED)


@evaluate.command(
    epilog="Example: `pairwright evaluate model demo/runs/dpo --benchmark cola --data COLA`; `--benchmark list` lists "
    "the benchmarks and the contents of their folders"
)
def model(
    checkpoint: Annotated[
        str,
        Argument(
            help="A checkpoint (or adapters), a run's folder, a name on the Hub; or a name on the server."
        ),
    ] = "",
    benchmark: Annotated[
        str, Option("--benchmark", "-b", help="Name of the benchmark, or list.")
    ] = "list",
    data: Annotated[
        Path, Option(help="Folder of its annotations and images, or a dataset.")
    ] = Path(),
    to: Annotated[
        Path | None, Option(help="File for the scores (default: below evaluations/).")
    ] = None,
    limit: Annotated[int | None, Option(min=1, help="Only the first N items.")] = None,
    server: Annotated[str, Option(help="Address of the OpenAI-compatible server (vLLM).")] = "",
    judge: Annotated[
        str, Option(help="Judge: a server's address, or a profile (its judge, else its chat).")
    ] = "",
    judge_model: Annotated[str, Option(help="The judge's name on its server.")] = "",
    perturb: Annotated[
        str, Option(help="Perturb the questions: noise:5, fog:5 or words:0.4.")
    ] = "",
    batch: Annotated[int, Option(min=1, help="Questions per batch; halved on out-of-memory.")] = 8,
    max_pixels: Annotated[int, Option(min=784, help="Larger images are scaled down first.")] = 448
    * 448,
    version: options.Version = None,
    as_json: options.AsJson = False,
) -> None:
    """Ask a model a benchmark's questions, and score its answers with bootstrap intervals.

    Answers are stored beside the scores as they arrive: a stopped evaluation continues where it
    was. Exits with 1 if some questions were not answered; the next call asks them again.
    """
    if benchmark == "list":
        from pairwright.tasks.evaluation.benchmark_list import BENCHMARKS

        for one in BENCHMARKS.values():
            judge = (
                f" It {'needs' if one.rubric.required else 'may have'} a judge (--judge)."
                if one.rubric
                else ""
            )
            print(f"{one.name}\n    {one.measures}.{judge}\n    --data holds {one.layout}")
        return
    if not checkpoint:
        raise ConfigError(
            "no model given: pairwright evaluate model CHECKPOINT --benchmark NAME --data DIR"
        )
    from pairwright.flows.building.progress import show_steps
    from pairwright.flows.training.evaluate_model import EvaluationConfig, evaluate_model

    asked: dict[str, Any] = {
        "model": checkpoint,
        "benchmark": benchmark,
        "data": data,
        "version": version,
        "to": to,
    }
    asked |= {
        "limit": limit,
        "server": server,
        "judge": judge,
        "judge_model": judge_model,
        "batch": batch,
    }
    config = EvaluationConfig(**asked, max_pixels=max_pixels, perturb=perturb)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as above
    found = evaluate_model(config, watch=show_steps)
    if as_json:
        print(json.dumps(found.as_json(), indent=1))
    else:
        options.print_table(*found.cells())
        print("\n".join(found.notes()))
    if found.results.pending:
        raise typer.Exit(options.OWED)
