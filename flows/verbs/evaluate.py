"""The verbs that evaluate: captions against references."""

import json
import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.verbs.options import OWED, AsJson, app

evaluate = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Score texts against references.",
    epilog="Example: `pairwright evaluate captions predictions.jsonl references.json`",
)
app.add_typer(evaluate, name="evaluate")


@evaluate.callback()
def _group() -> None:
    """Keep it a group of verbs while there is one verb only."""


@evaluate.command(epilog="Example: `pairwright evaluate captions predictions.jsonl references.json --protocol coco`")
def captions(
    predictions: Annotated[Path, typer.Argument(help="One text per id: JSON Lines, JSON, or COCO's results.")],
    references: Annotated[Path, typer.Argument(help="Texts per id: the same, COCO's annotations, or Spot-the-Diff's.")],
    protocol: Annotated[
        str,
        typer.Option(
            "--protocol", help="coco; spot-the-diff, spot-the-diff-records (single change), spot-the-diff-multi."
        ),
    ] = "coco",
    metric: Annotated[
        list[str] | None, typer.Option("--metric", help="bleu, meteor, rouge-l, cider-d, spice (repeatable).")
    ] = None,
    missing: Annotated[
        str, typer.Option("--missing", help="References without a prediction: refuse, empty, leave-out.")
    ] = "refuse",
    tokeniser: Annotated[str, typer.Option("--tokeniser", help="auto (Java's where it runs), java, python.")] = "auto",
    resamples: Annotated[int, typer.Option("--resamples", min=0, max=100_000, help="For intervals; 0: none.")] = 1000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the resamples.")] = 0,
    limit_s: Annotated[float, typer.Option("--limit-seconds", min=1, help="For each Java program.")] = 600,
    as_json: AsJson = False,
) -> None:
    """Score captions: BLEU, METEOR, ROUGE-L, CIDEr-D, SPICE as coco-caption does, with bootstrap intervals.

    What needs Java or a download and lacks it is skipped, and its reason told. Ends with 1 where a metric that was
    asked for by --metric was skipped.
    """
    from flows.evaluate_captions import evaluate_captions
    from flows.progress import count_steps
    from tasks.evaluation.score_captions import METRICS, ScoringConfig

    config = ScoringConfig(tuple(dict.fromkeys(metric or METRICS)), tokeniser, resamples, seed, limit_s)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no Java program is left behind
    with count_steps("metrics") as progress:
        found = evaluate_captions(
            predictions, references, config, protocol=protocol, missing=missing, progress=progress
        )
    if as_json:
        print(json.dumps(found.as_json(), indent=1))
    else:
        _print_scores(found)
    if metric and found.found.skipped:
        raise typer.Exit(OWED)


def _print_scores(found: Any) -> None:
    from rich.console import Console

    from flows.show_scores import score_notes, score_table

    console = Console()
    console.print(score_table(found), soft_wrap=False)
    for line in score_notes(found):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
