"""Show what the data teaches: ``make proof``, or ``python -m tests.proof.run_proof --to FOLDER``.

Everything is drawn, so that each statement of each answer is known to be true or false
(``draw_scenes``). A stand-in that sees (``see``), and has read no description of a difference, is
trained by the project's own trainer:

    data     SFT on 1,000 to 30,000 generated texts, the same number of steps
    people   100, 300 and 1,000 texts as people write them: alone, after generated ones, before them
    noise    writers that take purple for blue, and cones for cubes, four times of five: SFT on
             their texts; then, each from there, more SFT, SFT on what a check passes, preference
             losses on checked true against checked false texts, and rounds in which the model
             itself writes both
    room     a model that still errs, clean texts: more SFT, preference losses by what is
             rejected, ADPO's temperature and pool

Each is repeated with ``--seeds``: other pairs, another order. Arms of one comparison take about
equally many processor seconds, which the table shows. Results are added to ``results.jsonl`` as
they come; what is there is not done again, nor is a training that was finished before the run was
stopped. Two processes at once take 100 minutes on two cores.
"""

import argparse
import json
import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from pairwright.schemas.rows import PreferenceRow
from tests.proof.draw_scenes import Drawn, Mistake, draw_pairs, say_as_mistaken
from tests.proof.measure_truth import judge, tells
from tests.proof.see import write_seeing_model
from tests.proof.trials import Arm, Trials, pick, prefer, set_up_process
from tests.proof.write_page import read_results, write_page

TESTS, FIRST_TEST = 300, 900
"""Pairs that are asked about, the same for all; and the seed that they are drawn with."""
SIZES = (1_000, 3_000, 10_000, 30_000)
PEOPLE = (100, 300, 1_000)
GENERATED = 10_000
MISTAKES: tuple[Mistake, ...] = (("colour", "purple", "blue"), ("shape", "cone", "cube"))
"""What writers mistake; the first of them one thing, the second both."""
OFTEN = 0.8
"""How often they do."""
PAIRS = 6_000
"""Of the experiments ``noise`` and ``room``."""
ROUNDS, ASKED, SAMPLES = 3, 1_000, 4
"""Rounds in which the model writes, the pairs of each of them, and the texts of a pair."""
SFT = Arm(objective="sft", steps=400, rate=1e-3)
SHORT = replace(SFT, steps=200)
TUNED = replace(SFT, steps=100)
MORE = replace(SFT, steps=80, rate=3e-4)
"""SFT from a trained model."""
TERM = ("sft_weight=1",)
DPO = Arm(objective="dpo", steps=40, rate=2e-4, settings=TERM)
"""Preferences from a trained model: two answers and a reference are about as much work."""
Result = dict[str, Any]
Said = list[tuple[Drawn, list[str]]]
"""Texts about pairs."""


def generated(pair: Drawn) -> str:
    """Return what the program says of a pair."""
    return pair.row.chosen


def learn_sizes(trials: Trials, size: int) -> Iterator[Result]:
    """Yield what SFT on so many generated texts gives."""
    rows = [pair.row for pair in draw_pairs(size, seed=trials.seed)]
    yield {"arm": "SFT", "size": f"{size:,}", **trials.train("sft", SFT, rows)}


def learn_perception(trials: Trials, size: int) -> Iterator[Result]:
    """Yield what SFT on as many texts gives with M3Diff's module."""
    rows = [pair.row for pair in draw_pairs(size, seed=trials.seed)]
    found = trials.train(
        "perception", replace(SFT, settings=("model.differential.enabled=true",)), rows
    )
    yield {
        "experiment": "data",
        "arm": "SFT, differential perception",
        "size": f"{size:,}",
        **found,
    }


def learn_people(trials: Trials, _: int) -> Iterator[Result]:
    """Yield what few human texts give alone, after generated ones, and before them."""
    rows = [pair.row for pair in draw_pairs(GENERATED, seed=trials.seed)]
    some = list(draw_pairs(2 * max(PEOPLE), seed=trials.seed + 50))
    none = trials.train("generated", SHORT, rows)
    yield {"arm": "generated texts alone", "size": "0", **none}
    for size in PEOPLE:
        human = [replace(pair.row, chosen=said) for pair in some if (said := pair.people())][:size]
        common = {"size": f"{size:,}"}
        longer = replace(SHORT, steps=SHORT.steps + TUNED.steps)
        yield {
            "arm": "people's texts alone",
            **common,
            **trials.train(f"alone-{size}", longer, human),
        }
        yield {
            "arm": "generated, then people's",
            **common,
            **trials.train(f"after-{size}", TUNED, human, "generated"),
        }
        trials.train(f"first-{size}", TUNED, human)
        before = trials.train(f"before-{size}", SHORT, rows, f"first-{size}")
        yield {"arm": "people's, then generated", **common, **before}


def learn_from_mistakes(trials: Trials, mistakes: int) -> Iterator[Result]:
    """Yield what is made of a mistaken writer's texts, two of each pair, with and without a check
    of them."""
    pairs = list(draw_pairs(PAIRS, seed=trials.seed))
    said = [[_write(pair, MISTAKES[:mistakes], n) for n in (0, 1)] for pair in pairs]
    both = list(zip(pairs, said, strict=True))
    everything = [prefer(pair, text) for pair, texts in both for text in texts]
    checked = [prefer(pair, text) for pair, text in _true_of(both)]
    false = 1 - len(checked) / len(everything)
    common = {"size": ("one mistake", "two mistakes")[mistakes - 1], "false texts": false}
    preferred, random = list(_compare(both, images=True)), Random(trials.seed)
    yield {
        **common,
        "arm": "SFT on all texts",
        **trials.train("noisy", replace(SFT, steps=250), everything),
    }
    yield {
        **common,
        "arm": "more SFT on all texts",
        **trials.train("more", MORE, everything, "noisy"),
    }
    yield {
        **common,
        "arm": "SFT on checked texts",
        **trials.train("checked", MORE, checked, "noisy"),
    }
    arms = {
        "DPO": DPO,
        "DPO without the SFT term": replace(DPO, settings=("sft_weight=0",)),
        "DPO, SFT term of weight 4": replace(DPO, settings=("sft_weight=4",)),
        "mDPO": replace(DPO, objective="mdpo", steps=DPO.steps * 3 // 4),
        "AdaViP": replace(DPO, objective="adavip", steps=DPO.steps * 3 // 4),
        "ADPO": replace(DPO, objective="adpo"),
    }
    for name, arm in arms.items():
        rows = pick(random, preferred, arm)
        yield {**common, "arm": name, **trials.train(name, arm, rows, "noisy")}
    first = trials.train("half", replace(MORE, steps=MORE.steps // 2), checked, "noisy")
    then = trials.train("both", replace(DPO, steps=DPO.steps // 2), preferred, "half")
    yield {**common, "arm": "SFT on checked, then DPO", **then, "cpu": first["cpu"] + then["cpu"]}
    if mistakes == len(MISTAKES):
        yield from _iterate(trials, pairs, common)


def _write(pair: Drawn, mistakes: Sequence[Mistake], number: int) -> str:
    random = Random(f"{pair.row.key} {number}")
    return say_as_mistaken(pair.graphs, mistakes if random.random() < OFTEN else (), random)


def _compare(said: Said, *, images: bool = False) -> Iterator[PreferenceRow]:
    """Yield, of pairs that have both, a text that tells the images apart against one that states
    something false."""
    for pair, texts in said:
        true = [text for text in texts if tells(text, pair.graphs)]
        false = [text for text in texts if not all(judge(text, pair.graphs))]
        if true and false:
            yield prefer(pair, true[0], false[0], images=images)


def _iterate(trials: Trials, pairs: Sequence[Drawn], common: Result) -> Iterator[Result]:
    """Yield three rounds of what ``pairwright iterate`` does, and one as long, from what was learnt
    of mistakes."""
    arm, last, spent = replace(DPO, steps=DPO.steps // 2), "noisy", 0
    for number in range(1, ROUNDS + 1):
        said, seconds = trials.sample(last, pairs[(number - 1) * ASKED : number * ASKED], SAMPLES)
        rows = list(_compare(said))
        found = trials.train(f"round-{number}", arm, rows, last)
        spent += seconds + found["cpu"]
        told = {"arm": f"its own texts, round {number} of {ROUNDS}", "texts": len(rows)}
        yield {**common, **told, **found, "cpu": spent}
        last = f"round-{number}"
    said, seconds = trials.sample("noisy", pairs[: ROUNDS * ASKED], SAMPLES)
    rows, true = list(_compare(said)), [prefer(pair, text) for pair, text in _true_of(said)]
    arms = {
        "DPO": (replace(arm, steps=arm.steps * ROUNDS), rows),
        "SFT on those that are true": (replace(MORE, steps=2 * arm.steps * ROUNDS), true),
    }
    for name, (long, own) in arms.items():
        found = trials.train(f"at once, {name}", long, own, "noisy")
        told = {"arm": f"its own texts at once: {name}", "texts": len(own)}
        yield {**common, **told, **found, "cpu": seconds + found["cpu"]}


def _true_of(said: Said) -> Iterator[tuple[Drawn, str]]:
    return ((pair, text) for pair, texts in said for text in texts if tells(text, pair.graphs))


def learn_with_room(trials: Trials, _: int) -> Iterator[Result]:
    """Yield what preferences give where a model still errs and all texts are true."""
    pairs = list(draw_pairs(PAIRS, seed=trials.seed))
    plain = [pair.row for pair in pairs]
    yield {"arm": "SFT", "size": "", **trials.train("room", replace(SHORT, steps=100), plain)}
    yield {"arm": "more SFT", "size": "", **trials.train("more", MORE, plain, "room")}
    some = Random(trials.seed).sample(pairs, DPO.steps * 32)
    edited = [prefer(pair, pair.row.chosen, pair.wrong()) for pair in some]
    sampled = [
        prefer(pair, pair.row.chosen, wrong[0])
        for pair, texts in trials.sample("room", some, SAMPLES)[0]
        if (
            wrong := [
                text for text in texts if judge(text, pair.graphs) and not tells(text, pair.graphs)
            ]
        )
    ]
    arms = {
        "DPO, a false statement": (DPO, edited),
        "DPO, its own false texts": (DPO, sampled),
    }
    adpo = replace(DPO, objective="adpo")
    arms |= {
        f"ADPO, tau {tau}": (replace(adpo, settings=(*TERM, f"adpo.temperature={tau}")), edited)
        for tau in (1, 2, 4)
    }
    arms["ADPO, pool of 32"] = (replace(adpo, settings=(*TERM, "adpo.candidates=32")), edited)
    for name, (arm, rows) in arms.items():
        yield {"arm": name, "size": "", "texts": len(rows), **trials.train(name, arm, rows, "room")}


Learning = Callable[[Trials, int], Iterator[Result]]
EXPERIMENTS: dict[str, tuple[Learning, tuple[int, ...]]] = {
    "noise": (learn_from_mistakes, (2, 1)),
    "people": (learn_people, (0,)),
    "room": (learn_with_room, (0,)),
    "data": (learn_sizes, SIZES),
    "perception": (learn_perception, (GENERATED,)),
}
Task = tuple[str, int, int]
"""Experiment, what it is of, seed."""


def run_task(folder: Path, base: Path, task: Task) -> list[Result]:
    """Return the results of an experiment with one seed."""
    set_up_process()
    name, size, seed = task
    scratch = folder / "-".join(map(str, task))
    say = Drawn.people if name == "people" else generated
    drawn = draw_pairs(2 * TESTS, seed=FIRST_TEST, split="test")
    tests = list(islice((pair for pair in drawn if say(pair)), TESTS))
    trials = Trials(folder=scratch, base=base, tests=tests, seed=seed, say=say)
    found: list[Result] = []
    for one in EXPERIMENTS[name][0](trials, size):
        found.append({"task": task, "experiment": name, "seed": seed, **one})
        print(
            (
                f"{name}, seed {seed}: {one['size']} {one['arm']}: {one['whole']:.1%} true, "
                f"{one['cpu']} s"
            ),
            flush=True,
        )
    shutil.rmtree(scratch)
    return found


def main() -> None:
    """Do what is not yet in ``results.jsonl``, and write the page."""
    options = _options()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    results = options.to / "results.jsonl"
    options.to.mkdir(parents=True, exist_ok=True)
    done = read_results(results)
    known = {tuple(one["task"]) for one in done}
    tasks = [
        (name, size, seed)
        for seed in options.seeds
        for name in options.only
        for size in EXPERIMENTS[name][1]
    ]
    unfinished = [task for task in tasks if task not in known]
    some = list(draw_pairs(2_000, seed=FIRST_TEST))
    texts = [
        text for pair in some for text in (pair.row.chosen, pair.people(), pair.row.prompt[0].text)
    ]
    base = write_seeing_model(options.to / "models", texts) if unfinished else Path()
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        for one in as_completed(
            waiting := [pool.submit(run_task, options.to, base, task) for task in unfinished]
        ):
            if one.exception():
                continue
            done += one.result()
            with results.open("a") as file:
                file.writelines(json.dumps(line) + "\n" for line in one.result())
            print(f"{len(done)} trainings", flush=True)
    print(write_page(done, options.to))
    for one in waiting:
        one.result()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", choices=EXPERIMENTS, default=list(EXPERIMENTS))
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    return parser.parse_args()


if __name__ == "__main__":
    main()
