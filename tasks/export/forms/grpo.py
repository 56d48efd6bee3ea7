"""Write prompts with their truth for GRPO trainers: TRL, verl and ms-swift read the same Parquet.

TRL takes ``prompt``, ms-swift and verl ``messages``; all take ``images``. ``truth`` holds the scene
graphs of both photographs, by which ``reward.py`` scores any answer exactly.
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pairwright.schemas.claims import is_no_change
from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export import parquet
from pairwright.tasks.export.form import (
    IMAGE_MARK,
    ExportSettings,
    Form,
    RowWriter,
    UnheldError,
    check_turns,
    mark_images,
    require,
    split_parts,
    wrap_row_errors,
)
from pairwright.tasks.export.paired_row import PairedRow
from pairwright.tasks.scenes.reward_answers import dump_truth, find_changes, read_truth

REWARD = "reward.py"
SOURCE = "pairwright"
"""Name of the data for verl, which chooses a reward function by it unless one is given."""
TEXT_MESSAGES = parquet.list_feature({"role": parquet.TEXT, "content": parquet.TEXT})
FEATURES: parquet.Feature = {
    "prompt": parquet.MESSAGES,
    "messages": TEXT_MESSAGES,
    "images": parquet.IMAGES,
    "truth": parquet.TEXT,
    "answer": parquet.TEXT,
    "data_source": parquet.TEXT,
    "reward_model": {"style": parquet.TEXT, "ground_truth": parquet.TEXT},
    "key": parquet.TEXT,
}
SCRIPT = '''"""Rewards of answers about two images, exact by the scene graphs in the column "truth".

Needs Pairwright and pydantic alone:

    pip install --no-deps pairwright && pip install pydantic

TRL:      GRPOTrainer(..., reward_funcs=reward_completions)
ms-swift: --external_plugins reward.py --reward_funcs pairwright
verl:     custom_reward_function.path=reward.py custom_reward_function.name=compute_score
"""

from pairwright.tasks.scenes.reward_answers import compute_score, reward, reward_completions

__all__ = ["compute_score", "reward", "reward_completions"]

try:
    from swift.rewards import ORM, orms
except ImportError:  # ms-swift 3, or another trainer
    try:
        from swift.plugin import ORM, orms
    except ImportError:
        ORM, orms = object, {}


class PairwrightReward(ORM):
    def __call__(self, completions, truth, **columns):
        return reward_completions(completions, truth)


orms["pairwright"] = PairwrightReward
'''


def _to_record(
    row: PreferenceRow,
    setting: ExportSettings,  # noqa: ARG001 - as for every form
) -> parquet.Record:
    graphs = row.graphs if isinstance(row, PairedRow) else None
    if graphs is None:
        raise UnheldError("no scene graphs of one scene")
    if not is_no_change(graphs) and not find_changes(graphs):
        raise UnheldError("its photographs differ, but no change is known")
    turns = mark_images(row)
    prompt: list[parquet.Record] = []
    for turn in turns:
        content = [{"text": None, **part} for part in split_parts(turn.text)]
        prompt.append({"role": turn.role, "content": content})
    truth = dump_truth(graphs)
    return {
        "prompt": prompt,
        "messages": [{"role": turn.role, "content": turn.text} for turn in turns],
        "images": parquet.image_cells(row.images, row.image_keys),
        "truth": truth,
        "answer": row.chosen,
        "data_source": SOURCE,
        "reward_model": {"style": "rule", "ground_truth": truth},
        "key": row.key,
    }


@contextmanager
def _open(folder: Path, setting: ExportSettings) -> Generator[RowWriter]:
    opens = parquet.open_parquet(parquet.arrow_schema(FEATURES), _to_record)
    with opens(folder, setting) as writer:
        yield writer
    (folder / REWARD).write_text(SCRIPT, encoding="utf-8")


def _check(record: parquet.Record, processor: Any) -> None:  # noqa: ARG001 - as for every form
    turns = [(turn["role"], turn["content"]) for turn in record["messages"]]
    check_turns(turns, len(record["images"]))
    slots = [part["type"] for turn in record["prompt"] for part in turn["content"]].count("image")
    marks = sum(text.count(IMAGE_MARK) for _, text in turns)
    require(slots == marks, f"{slots} slots for {marks} {IMAGE_MARK}")
    require(record["truth"] == record["reward_model"]["ground_truth"], "two truths")
    with wrap_row_errors("its truth"):
        read_truth(record["truth"])


FORM = Form(
    name="grpo",
    about="prompts with scene graphs and an exact reward for TRL, verl and ms-swift: Parquet",
    cannot=(
        "It holds pairs of rendered and planted photographs of one scene, whose changes are known. "
        "It lacks rejected texts and images; the chosen text is in `answer`, for comparison."
    ),
    opens=_open,
    check=parquet.read_parquet(_check),
    packages=("datasets",),
    use=(
        "`reward.py` scores an answer from 0 to 1: the harmonic mean of the share of its "
        "statements that are true and the share of the changes that it names.\n\n"
        "```python\n"
        'dataset = datasets.load_dataset("FOLDER")\n'
        "trainer = trl.GRPOTrainer(\n"
        '    model, reward_funcs=reward.reward_completions, train_dataset=dataset["train"]\n'
        ")\n"
        "```\n\n"
        "```bash\n"
        "swift rlhf --rlhf_type grpo --dataset FOLDER/data/train-*.parquet --model MODEL \\\n"
        "    --external_plugins FOLDER/reward.py --reward_funcs pairwright\n"
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \\\n"
        '    data.train_files="[$(ls FOLDER/data/train-*.parquet | paste -sd,)]" \\\n'
        "    data.prompt_key=messages \\\n"
        "    data.image_key=images custom_reward_function.path=FOLDER/reward.py\n"
        "```"
    ),
    owns=frozenset({"data", REWARD}),
    knows_pairs=True,
)
