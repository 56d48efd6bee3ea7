"""The verbs that evaluate: captions against references, a model on a benchmark."""

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from pairwright.flows.verbs import options
from pairwright.flows.verbs.options import app
from pairwright.schemas.errors import ConfigError

if TYPE_CHECKING:
    from pairwright.tasks.evaluation.read_captions import Matched
    from pairwright.tasks.evaluation.score_captions import CaptionScores, ScoringConfig

evaluate = typer.Typer(
    no_args_is_help=True,
    help="Score texts against references, and models on benchmarks.",
    epilog="Example: `pairwright evaluate captions predictions.jsonl references.json`",
)
app.add_typer(evaluate, name="evaluate")


@evaluate.command(
    epilog="Example: `pairwright evaluate captions predictions.jsonl references.json --protocol "
    "coco`"
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
    """Score captions by BLEU, METEOR, ROUGE-L, CIDEr-D and SPICE, as coco-caption does.

    Scores have bootstrap intervals. Metrics that lack Java or a download are skipped with the
    reason. Exits with 1 if a metric named by --metric was skipped.
    """
    from pairwright.flows.building.progress import show_steps
    from pairwright.tasks.evaluation.read_captions import match_captions, read_captions
    from pairwright.tasks.evaluation.score_captions import METRICS, ScoringConfig, score_captions

    config = ScoringConfig(tuple(dict.fromkeys(metric or METRICS)), resamples)
    matched = match_captions(
        read_captions(predictions), read_captions(references), protocol=protocol, missing=missing
    )
    # so that no Java program is left behind
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with show_steps("metrics") as progress:
        scored = score_captions(matched, config, progress=progress)
    if as_json:
        about = _describe_scores(matched, scored, config)
        print(json.dumps({"protocol": protocol, **about}, indent=1))
    else:
        _print_scores(matched, scored, protocol)
    if metric and scored.skipped:
        raise typer.Exit(options.UNFINISHED)


def _describe_scores(
    matched: "Matched", scored: "CaptionScores", config: "ScoringConfig"
) -> dict[str, Any]:
    """Return scores of captions, and what was left out, as JSON."""
    from pairwright.tasks.evaluation.measured import CONFIDENCE

    return {
        "items": len(matched.items),
        "references": scored.references,
        "left_out": {
            "blank_references": matched.blank,
            "items_without_references": matched.unreferenced,
        },
        "predictions": {"empty": matched.empty, "missing": matched.missing},
        "bootstrap": {
            "resamples": config.resamples,
            "seed": config.seed,
            "confidence": CONFIDENCE,
        },
        "scores": {
            score.name: {"score": score.value, "low": score.low, "high": score.high}
            for score in scored.scores
        },
        "skipped": scored.skipped,
    }


def _print_scores(matched: "Matched", scored: "CaptionScores", protocol: str) -> None:
    """Print scores of captions as a table, and what was left out."""
    from pairwright.tasks.evaluation.measured import CONFIDENCE

    rows: list[tuple[str, ...]] = []
    for score in scored.scores:
        shares = (score.value, score.low, score.high)
        rows.append((score.name, *map(_format_share, shares)))
    rows += [(name.upper(), "-", "skipped", "") for name in scored.skipped]
    options.print_table(["metric", ">x 100", f">{CONFIDENCE:.0%} from", ">to"], *rows)
    print(f"{len(matched.items):,} items, {scored.references:,} references; protocol {protocol}")
    left_out = (
        (matched.missing, "references had no prediction"),
        (matched.empty, "predictions are empty"),
        (matched.blank, "blank references were left out"),
        (matched.unreferenced, "items with blank references only were left out"),
    )
    for count, text in left_out:
        if count:
            print(f"{count:,} {text}")
    for name, reason in scored.skipped.items():
        print(f"{name} was skipped: {reason}")


def _format_share(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f}"


@evaluate.command(
    epilog="Example: `pairwright evaluate model demo/runs/dpo --benchmark cola --data COLA`; "
    "`--benchmark list` lists the benchmarks and the contents of their folders"
)
def model(
    checkpoint: Annotated[
        str,
        Argument(
            help="A checkpoint (or adapters), a run's folder, a name on the Hub; or a name on the "
            "server."
        ),
    ] = "",
    benchmark: Annotated[
        str, Option("--benchmark", "-b", help="Name of the benchmark, or list.")
    ] = "list",
    data: Annotated[
        Path | None,
        Option(help="Folder of its annotations and images, or a dataset (default: the run's)."),
    ] = None,
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
    prompts: Annotated[
        str,
        Option(help="Folder of prompts in place of the benchmark's (see `pairwright prompts`)."),
    ] = "",
    batch: Annotated[int, Option(min=1, help="Questions per batch; halved on out-of-memory.")] = 8,
    max_pixels: Annotated[
        int | None,
        Option(min=784, help="Larger images are scaled down (default: as in its training)."),
    ] = None,
    version: options.Version = None,
    as_json: options.AsJson = False,
) -> None:
    """Ask a model a benchmark's questions, and score its answers with bootstrap intervals.

    Answers are stored beside the scores as they arrive: a stopped evaluation continues where it
    was. Exits with 1 if some questions were not answered; the next call asks them again.
    """
    if benchmark == "list":
        _print_benchmarks()
        return
    if not checkpoint:
        raise ConfigError(
            "no model given: pairwright evaluate model CHECKPOINT --benchmark NAME --data DIR"
        )
    from pairwright.flows.building.progress import show_steps
    from pairwright.flows.training.evaluate_model import (
        EvaluationConfig,
        evaluate_model,
        find_run,
    )

    run = find_run(checkpoint)
    if data is None:
        data = run.parent.parent if run else Path()
    config = EvaluationConfig(
        model=checkpoint,
        benchmark=benchmark,
        data=data,
        version=version,
        to=to,
        limit=limit,
        server=server,
        judge=judge,
        judge_model=judge_model,
        batch=batch,
        max_pixels=max_pixels or 0,
        perturb=perturb,
        prompts=prompts,
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as above
    evaluated = evaluate_model(config, watch=show_steps)
    if as_json:
        print(json.dumps(evaluated.as_json(), indent=1))
    else:
        options.print_table(*evaluated.table_lines())
        print("\n".join(evaluated.summary_lines()))
    if evaluated.results.pending:
        raise typer.Exit(options.UNFINISHED)


def _print_benchmarks() -> None:
    """Print each benchmark, and what its folder holds."""
    from pairwright.tasks.evaluation.benchmark_list import BENCHMARKS

    for benchmark in BENCHMARKS.values():
        judge = ""
        if benchmark.rubric:
            verb = "needs" if benchmark.rubric.required else "may have"
            judge = f" It {verb} a judge (--judge)."
        print(
            f"{benchmark.name}\n    {benchmark.measures}.{judge}\n"
            f"    --data holds {benchmark.layout}"
        )
