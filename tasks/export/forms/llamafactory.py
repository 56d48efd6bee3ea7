"""Write what LLaMA-Factory takes for a multimodal preference: sharegpt with ``ranking``, and its ``dataset_info.json``.

The folder is a ``dataset_dir``: each split is an entry of its own, and paths of images are from there.
"""

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export.checks.llamafactory import read_samples
from pairwright.tasks.export.form import Form, Setting, Sizes, plain_name
from pairwright.tasks.export.media_folder import MediaFolder
from pairwright.tasks.export.place_images import SHAREGPT_ROLES, place_images, rejected_text
from pairwright.tasks.export.write_lines import LineWriters

INFO = "dataset_info.json"
COLUMNS = {"messages": "conversations", "chosen": "chosen", "rejected": "rejected", "images": "images"}
TAGS = {
    "role_tag": "from",
    "content_tag": "value",
    "user_tag": "human",
    "assistant_tag": "gpt",
    "system_tag": "system",
}


@dataclass(frozen=True)
class LlamaFactoryWriter:
    """Write preferences between texts."""

    lines: LineWriters
    media: MediaFolder

    def add(self, row: PreferenceRow) -> None:
        """Write a row.

        Raises:
            UnheldError: it has no rejected text, its turns do not alternate, or its words have marks of images.
        """
        turns, rejected, before = place_images(row), rejected_text(row), self.media.written
        record = {
            "conversations": [{"from": SHAREGPT_ROLES[turn.role], "value": turn.text} for turn in turns],
            "chosen": {"from": "gpt", "value": row.chosen},
            "rejected": {"from": "gpt", "value": rejected},
            "images": [self.media.put(image) for image in row.images],
        }
        self.lines.add(row.split, record, beside=self.media.written - before)

    def sizes(self) -> Sizes:
        """Return what was written."""
        return self.lines.sizes()


@contextmanager
def opened(folder: Path, setting: Setting) -> Generator[LlamaFactoryWriter]:
    """Give what writes into a folder; the entries of ``dataset_info.json`` are written last."""
    with LineWriters(folder / "data") as lines:
        yield LlamaFactoryWriter(lines, MediaFolder(folder))
    info = {
        f"{plain_name(setting.name)}_{split}": {
            "file_name": f"data/{split}.jsonl",
            "formatting": "sharegpt",
            "ranking": True,
            "columns": COLUMNS,
            "tags": TAGS,
        }
        for split in lines.sizes()
    }
    (folder / INFO).write_text(json.dumps(info, indent=2) + "\n", encoding="utf-8")


FORM = Form(
    name="llamafactory",
    about="multimodal preferences for LLaMA-Factory: sharegpt JSON Lines, dataset_info.json and image files",
    cannot=(
        "LLaMA-Factory shows both answers the same images, so rejected images are not in it; nor are further "
        "negatives, licences and how a text was made."
    ),
    opens=opened,
    check=read_samples,
    use=(
        "```yaml\n"
        "stage: dpo\n"
        "dataset_dir: FOLDER  # this folder: dataset_info.json is in it, and images are found from here\n"
        "media_dir: FOLDER\n"
        "dataset: NAME_train\n"
        "eval_dataset: NAME_validation\n"
        "```"
    ),
    owns=frozenset({"data", "images", INFO}),
)
