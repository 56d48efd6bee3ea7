"""Show what the data teaches: ``make proof``, or ``python -m tests.proof.run_proof --to FOLDER``.

Everything is drawn, so that each statement of each answer is known to be true or false (``draw_scenes``). A stand-in
that sees (``see``), and has read no description of a difference, is trained by the project's own trainer:

    data    SFT on 1,000 to 30,000 generated texts, the same number of steps
    people  SFT on 100, 300 and 1,000 texts as people write them: alone, after generated ones, before them
    noise   writers that state something false in 20 and 40 % of their texts: SFT on those, then, each from there, more
            SFT, SFT on what a check passes, and preference losses on checked true against checked false texts
    room    a model that still errs, clean texts: more SFT, preference losses, ADPO's temperature and pool

Each is repeated with ``--seeds``: other pairs, another order. Arms of one comparison take about equally many processor
seconds, which the table shows. Results are added to ``results.jsonl`` as they come; what is there is not done again.
Two processes at once take about 90 minutes on two cores.
"""

import argparse
import json
import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from pairwright.schemas.rows import PreferenceRow
from tests.proof.draw_scenes import Drawn, draw_pairs
from tests.proof.measure_truth import tells
from tests.proof.see import write_seeing_model
from tests.proof.trials import Trials, prefer, set_up_process, write_carelessly
from tests.proof.write_page import write_page

TESTS, FIRST_TEST = 300, 900
"""Pairs that are asked about, the same for all; and the seed that they are drawn with."""
SIZES = (1_000, 3_000, 10_000, 30_000)
PEOPLE = (100, 300, 1_000)
SHARES = (0.2, 0.4)
NOISY, CLEAN = 6_000, 3_000
"""Pairs of the experiments ``noise`` and ``room``."""
SFT, RATE = 200, 1e-3
"""Steps from the model that sees, and their learning rate."""
MORE, MORE_RATE = 80, 3e-4
"""Steps of an arm that learns from one answer of each row, from there."""
PREFERRED = 40
"""Steps of an arm that compares two answers with a reference: about as much work."""
GENERATED = 10_000
Result = dict[str, Any]


def generated(pair: Drawn) -> str:
    """Return what the program says of a pair."""
    return pair.row.chosen


def learn_sizes(trials: Trials, size: int) -> Iterator[Result]:
    """Yield what SFT on so many generated texts gives."""
    rows = [pair.row for pair in draw_pairs(size, seed=trials.seed)]
    yield {"arm": "SFT", "size": size, **trials.train(f"sft-{size}", "sft", rows, steps=SFT, rate=RATE)}


def learn_people(trials: Trials, size: int) -> Iterator[Result]:
    """Yield what few human texts give alone, after generated ones, and before them."""
    rows = [pair.row for pair in draw_pairs(GENERATED, seed=trials.seed)]
    human = [replace(pair.row, chosen=pair.people()) for pair in draw_pairs(size, seed=trials.seed + 50)]
    alone = trials.train(f"people-{size}", "sft", human, steps=MORE, rate=RATE)
    yield {"arm": "people's texts alone", "size": size, **alone}
    longer = trials.train(f"people-{size}-long", "sft", human, steps=SFT + MORE, rate=RATE)
    yield {"arm": "people's texts alone, as many steps", "size": size, **longer}
    trials.train(f"generated-{size}", "sft", rows, steps=SFT, rate=RATE)
    after = trials.train(f"after-{size}", "sft", human, steps=MORE, rate=RATE / 2, start=f"generated-{size}")
    yield {"arm": "generated texts, then people's", "size": size, **after}
    before = trials.train(f"before-{size}", "sft", rows, steps=SFT, rate=RATE / 2, start=f"people-{size}")
    yield {"arm": "people's texts, then generated", "size": size, **before}


ARMS: dict[str, tuple[str, list[str]]] = {
    "DPO": ("dpo", []),
    "DPO without the SFT term": ("dpo", ["sft_weight=0"]),
    "mDPO": ("mdpo", []),
    "AdaViP": ("adavip", []),
    "ADPO": ("adpo", []),
}


def learn_from_noise(trials: Trials, share: float) -> Iterator[Result]:
    """Yield what is made of a careless writer's texts, two for each pair, with and without a check of them."""
    pairs = list(draw_pairs(NOISY, seed=trials.seed))
    said = [[write_carelessly(pair.graphs, share, Random(f"{pair.row.key} {n}")) for n in (0, 1)] for pair in pairs]
    everything = [prefer(pair, text) for pair, texts in zip(pairs, said, strict=True) for text in texts]
    checked, preferred = list[PreferenceRow](), list[PreferenceRow]()
    for pair, texts in zip(pairs, said, strict=True):
        true = [text for text in texts if tells(text, pair.graphs)]
        checked += [prefer(pair, text) for text in true]
        if len(true) == 1:
            preferred.append(prefer(pair, true[0], next(text for text in texts if text not in true), images=True))
    first = f"noisy-{share}"
    yield {"arm": "SFT on all texts", "size": share, **trials.train(first, "sft", everything, steps=SFT, rate=RATE)}
    for arm, rows in (("more SFT on all texts", everything), ("SFT on checked texts", checked)):
        yield {"arm": arm, "size": share, **trials.train(arm, "sft", rows, steps=MORE, rate=MORE_RATE, start=first)}
    for arm, (objective, settings) in ARMS.items():
        own = trials.train(
            arm, objective, preferred, steps=PREFERRED, rate=MORE_RATE / 2, start=first, settings=settings
        )
        yield {"arm": arm, "size": share, **own}
    trials.train("half", "sft", checked, steps=MORE // 2, rate=MORE_RATE, start=first)
    both = trials.train("both", "dpo", preferred, steps=PREFERRED // 2, rate=MORE_RATE / 2, start="half")
    yield {"arm": "SFT on checked texts, then DPO", "size": share, **both}


def learn_with_room(trials: Trials, _: float) -> Iterator[Result]:
    """Yield what preferences give where a model still errs and all texts are true."""
    pairs = list(draw_pairs(CLEAN, seed=trials.seed))
    plain = [pair.row for pair in pairs]
    edited = [prefer(pair, pair.row.chosen, pair.wrong()) for pair in pairs]
    yield {"arm": "SFT", "size": 0, **trials.train("room", "sft", plain, steps=SFT // 2, rate=RATE)}
    yield {"arm": "more SFT", "size": 0, **trials.train("more", "sft", plain, steps=MORE, rate=MORE_RATE, start="room")}
    arms: dict[str, tuple[str, list[str]]] = {"DPO, false statements": ("dpo", [])}
    arms |= {f"ADPO, tau {tau}": ("adpo", [f"adpo.temperature={tau}"]) for tau in (1, 2, 4)}
    arms |= {f"ADPO, pool of {pool}": ("adpo", [f"adpo.candidates={pool}"]) for pool in (32, 512)}
    for arm, (objective, settings) in arms.items():
        own = trials.train(arm, objective, edited, steps=PREFERRED, rate=MORE_RATE / 2, start="room", settings=settings)
        yield {"arm": arm, "size": 0, **own}


Learning = Callable[[Trials, Any], Iterator[Result]]
EXPERIMENTS: dict[str, tuple[Learning, tuple[float, ...]]] = {
    "data": (learn_sizes, SIZES),
    "people": (learn_people, PEOPLE),
    "noise": (learn_from_noise, SHARES),
    "room": (learn_with_room, (0,)),
}
Task = tuple[str, float, int]
"""Experiment, size, seed."""


def run_task(folder: Path, base: Path, task: Task) -> list[Result]:
    """Return the results of an experiment at one size with one seed."""
    set_up_process()
    name, size, seed = task
    scratch = folder / "-".join(map(str, task))
    tests = list(draw_pairs(TESTS, seed=FIRST_TEST, split="test"))
    say = Drawn.people if name == "people" else generated
    trials = Trials(folder=scratch, base=base, tests=tests, seed=seed, say=say)
    found = [{"experiment": name, "seed": seed, **one} for one in EXPERIMENTS[name][0](trials, size)]
    shutil.rmtree(scratch)
    return found


def main() -> None:
    """Do what is not yet in ``results.jsonl``, and write the page."""
    options = _options()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    results = options.to / "results.jsonl"
    options.to.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    known = {(one["experiment"], one["size"], one["seed"]) for one in done}
    tasks = [(name, size, seed) for name in options.only for seed in options.seeds for size in EXPERIMENTS[name][1]]
    owed = [task for task in tasks if task not in known]
    some = list(draw_pairs(2_000, seed=FIRST_TEST))
    texts = [text for pair in some for text in (pair.row.chosen, pair.people(), pair.row.prompt[0].text)]
    base = write_seeing_model(options.to / "models", texts) if owed else Path()
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        for one in as_completed(pool.submit(run_task, options.to, base, task) for task in owed):
            done += one.result()
            with results.open("a") as file:
                file.writelines(json.dumps(line) + "\n" for line in one.result())
            print(f"{len(done)} trainings", flush=True)
    print(write_page(done, options.to))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", choices=EXPERIMENTS, default=list(EXPERIMENTS))
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    return parser.parse_args()


if __name__ == "__main__":
    main()
