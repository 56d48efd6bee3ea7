"""Read Parquet exports with ``datasets.load_dataset``, streamed, so that nothing is copied into its cache.

Images are decoded by its own code, one row at a time, so that a broken one is named. For TRL each row then goes through
its own collator. Needs ``datasets``, and for TRL ``trl``.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.export.sample import Sample, check_answer, naming_row, need

Where = str
Row = dict[str, Any]


def read_hf(folder: Path, processor: Any) -> Iterator[Sample]:  # noqa: ARG001 - as for every form
    """Yield the rows of the form ``hf``; those without a rejected text have an empty list there.

    Raises:
        BrokenRowError: a row cannot be loaded, or its slots are not its images.
    """
    for where, row in _rows(folder, lists=("images", "rejected_images")):
        yield _preference(f"{where} ({row['key']})", row)


def read_trl(folder: Path, processor: Any) -> Iterator[Sample]:
    """Yield the rows of the form ``trl``, each taken by TRL's collator.

    Raises:
        BrokenRowError: a row cannot be loaded or collated.
        ConfigError: trl is not installed.
    """
    collate = _collator(processor)
    for where, row in _rows(folder, lists=("images",)):
        need(true=bool(row["rejected"]), where=where, why="no rejected text")
        sample = _preference(where, row)
        with naming_row(where, "TRL's collator refuses it"):
            collate([{**row, "images": list(sample.images)}])
        yield sample


def read_rlaif_v(folder: Path, processor: Any) -> Iterator[Sample]:  # noqa: ARG001 - as for every form
    """Yield the rows of the form ``rlaif-v``.

    Raises:
        BrokenRowError: a row cannot be loaded, or lacks a text.
    """
    for where, row in _rows(folder, single=("image",)):
        where = f"{where} ({row['idx']})"
        question = check_answer(row["question"], where, "question's")
        answers = [check_answer(row[side], where, side) for side in ("chosen", "rejected")]
        messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": question}]}]
        yield Sample(where=where, messages=messages, images=[row["image"]], answers=answers)


def _rows(folder: Path, *, lists: Sequence[str] = (), single: Sequence[str] = ()) -> Iterator[tuple[Where, Row]]:
    """Yield every row with its name, its images decoded."""
    datasets = _import("datasets")
    decode = datasets.Image().decode_example
    with naming_row("the folder", "datasets cannot load it"):
        splits = datasets.load_dataset(str(folder), streaming=True)
    for split, rows in splits.items():
        for number, row in enumerate(_undecoded(rows, split)):
            where = f"{split}, row {number}"
            with naming_row(where, "an image does not decode"):
                row |= {name: [_loaded(decode(cell)) for cell in row[name]] for name in lists}
                row |= {name: _loaded(decode(row[name])) for name in single}
            yield where, row


def _undecoded(rows: Any, split: str) -> Iterator[Row]:
    with naming_row(split, "datasets cannot read it"):
        yield from rows.decode(enable=False)


def _loaded(image: Any) -> Any:
    image.load()
    return image


def _preference(where: str, row: Row) -> Sample:
    with naming_row(where, "no messages"):
        parts = [part for message in row["prompt"] for part in message["content"]]
        slots = sum(part["type"] == "image" for part in parts)
        said = [row["chosen"][0]["content"][0]["text"]]
        said += [message["content"][0]["text"] for message in row["rejected"]]
    images = row["images"]
    need(true=slots == len(images), where=where, why=f"{slots} slots for {len(images)} images")
    answers = [check_answer(text, where, side) for text, side in zip(said, ("chosen", "rejected"), strict=False)]
    return Sample(where=where, messages=[_plain(message) for message in row["prompt"]], images=images, answers=answers)


def _plain(message: Row) -> Row:
    """Return a message without the empty fields that Arrow fills in."""
    parts = [{name: value for name, value in part.items() if value is not None} for part in message["content"]]
    return {"role": message["role"], "content": parts}


def _collator(processor: Any) -> Any:
    _import("trl")
    from trl.trainer.dpo_trainer import DataCollatorForVisionPreference

    return DataCollatorForVisionPreference(processor)


def _import(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"--verify: reads the result with {name}, which is not here: python -m pip install {name}"
        ) from error
