"""Trainings on every written table, with rows of files and of other datasets mixed in, on real
datasets."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pairwright as pw
from pairwright.flows.training.make_train_config import make_config
from pairwright.flows.training.train_model import prepare, train
from pairwright.flows.versions.version import open_version
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training.freeze_rows import FrozenRows
from pairwright.tasks.training.runs import Run
from tests.fixtures.command import run, words_of
from tests.fixtures.pictures import picture
from tests.fixtures.runs_to_train import At, logged

FAST = {
    "optimiser.max_steps": 4,
    "optimiser.per_device_train_batch_size": 4,
    "model.lora.rank": 4,
    "output.logging_steps": 1,
    "output.save_steps": 2,
    "output.merge_adapters": "false",
    "data.eval_split": "",
}
Freeze = Callable[..., dict[str, FrozenRows]]


@pytest.fixture
def freeze(qwen: Path, tmp_path: Path) -> Freeze:
    """Return what begins a run, without training, and returns its rows by split."""

    def begin(dataset: Path, *settings: str, name: str = "run") -> dict[str, FrozenRows]:
        started = Run(dataset / "runs" / name)
        with started.locked():
            config = make_config("sft", settings, model=str(qwen))
            prepare(open_version(Folder(str(dataset))), config, started)
        splits = ("train", "validation", "test")
        return {
            split: FrozenRows(folder=Folder(str(dataset)), file=str(started.rows), split=split)
            for split in splits
        }

    return begin


def read(frozen: dict[str, FrozenRows]) -> list[Any]:
    return [rows.read(place) for rows in frozen.values() for place in range(len(rows))]


@pytest.mark.parametrize("table", ["comparisons", "captions", "differences"])
def test_rows_of_a_table_have_the_splits_and_the_images_of_their_pairs(
    copy: Path, freeze: Freeze, table: str
) -> None:
    opened = pw.open(copy)
    pairs = {pair.key: (pair.first, pair.second) for pair in opened["pairs"]}
    splits = {split.subject: split.split for split in opened["splits"]}
    images = {image.key: image.image for image in opened["images"]}
    of_image = {key: splits[pair] for pair, shown in pairs.items() for key in shown}
    rows = {row.key: row for row in opened[table]}
    found = read(freeze(copy, f"data.table={table}", "data.eval_split=test", "data.split=train"))
    wanted = {
        key for key, row in rows.items() if {**splits, **of_image}[row.subject] in ("train", "test")
    }
    assert {row.key for row in found} == wanted
    assert len(found) == len(wanted) > 3
    for row in found:
        shown = (row.subject,) if table == "captions" else pairs[row.subject]
        assert row.image_keys == shown
        assert row.images == tuple(images[key] for key in shown)
        assert row.split == {**splits, **of_image}[row.subject]
        assert (
            row.chosen
            == (rows[row.key].conversation[-1] if table == "comparisons" else rows[row.key]).text
        )


def test_another_dataset_is_mixed_in_without_what_is_held_out(
    copy: Path, rendered: Path, freeze: Freeze
) -> None:
    """The other one has the same images: its rows are those of this one's training split again."""
    found = freeze(
        copy, "data.table=comparisons", f"data.mix=['{rendered}:0.5']", "data.eval_split=test"
    )
    keys, held_out = (
        found["train"].keys(),
        {key for row in read({"test": found["test"]}) for key in row.image_keys},
    )
    count = len(keys) // 2
    assert set(keys[:count]) == set(keys[count:])
    assert held_out.isdisjoint(
        key for row in read({"train": found["train"]}) for key in row.image_keys
    )
    (taken,) = Run(copy / "runs/run").data()["mix"]
    assert taken == {
        "source": str(rendered),
        "share": 0.5,
        "rows": count,
        "different": count,
        "version": 1,
    }


def write_llava(folder: Path, *, answer: str = "It is blue.") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "1.png").write_bytes(picture(1, size=(48, 40)))
    asked, gone = (
        {"from": "human", "value": "<image>\nWhat is it?"},
        {"from": "human", "value": "Sure?"},
    )
    said = [asked, {"from": "gpt", "value": answer}, gone, {"from": "gpt", "value": "Yes."}]
    records = [
        *({"image": "1.png", "conversations": said} for _ in range(4)),
        {"conversations": said[2:]},
        {"image": "../1.png", "conversations": said},
    ]
    (folder / "mix.json").write_text(json.dumps(records))
    return folder / "mix.json"


def test_a_stopped_run_goes_on_with_the_same_rows_in_the_same_order(
    copy: Path,
    qwen: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "pairwright.tasks.training.fit_preferences.sample_answers", lambda trainer, folder: None
    )
    mixed = write_llava(tmp_path / "llava")
    settings = [f"{name}={value}" for name, value in FAST.items()]
    settings += ["data.table=comparisons", f"data.mix=['{mixed}:0.6']"]
    config, whole = make_config("sft", settings, model=str(qwen)), Run(copy / "runs/whole")
    assert train(open_version(Folder(str(copy))), config, name="whole").finished
    stop = At(3, lambda: [os.kill(os.getpid(), signal.SIGINT) for _ in range(2)])
    with pytest.raises(KeyboardInterrupt):
        train(open_version(Folder(str(copy))), config, name="stopped", watcher=stop)
    stopped = Run(copy / "runs/stopped")
    assert stopped.steps() == [2]

    monkeypatch.chdir(tmp_path)
    words = [
        "train",
        copy,
        "--objective",
        "sft",
        "--model",
        qwen,
        "--name",
        "stopped",
        "--table",
        "comparisons",
    ]
    words += ["--mix", "llava/mix.json:0.6", *words_of(FAST)]
    write_llava(tmp_path / "llava", answer="It is red.")
    assert run(*words) == 2
    assert "mix.json: has changed" in capsys.readouterr().err
    write_llava(tmp_path / "llava")
    assert run(*words) == 0
    keys = [
        FrozenRows(folder=Folder(""), file=str(one.rows), split="train").keys()
        for one in (stopped, whole)
    ]
    assert keys[0] == keys[1]
    assert logged(stopped) == logged(whole)

    data, refused = (
        stopped.data(),
        [json.loads(line) for line in stopped.refused.read_text().splitlines()],
    )
    own = data["rows"]["train"] - data["mix"][0]["rows"]
    assert data["mix"][0]["rows"] == round(own / 0.4 * 0.6)
    assert data["mix"][0]["different"] == 5
    assert refused == [
        {"key": "mix.json#5", "reason": "path leaves the folder", "detail": "../1.png"}
    ]
    assert not (stopped.folder / "mixed").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--table", "questions"], "has no questions to train on"),
        (["--table", "cheese"], "'comparisons'"),
        (["--objective", "dpo", "--table", "captions"], "need objective sft"),
        (["--objective", "dpo", "--mix", "x.json:0.5"], "need objective sft"),
        (["--mix", "x.json"], "FILE_OR_DATASET:SHARE"),
        (["--mix", "x.json:1.5"], "FILE_OR_DATASET:SHARE"),
        (["--mix", "x.json:0.0"], "FILE_OR_DATASET:SHARE"),
        (["--mix", "x.json:0.5", "--mix", "y.json:0.5"], "no room"),
        (["--mix", "nowhere:0.5"], "nowhere: is neither LLaVA's JSON nor a dataset"),
        (["--mix", "empty.json:0.5"], "empty.json: no row can be trained on: there is none"),
        (["--mix", "bad.json:0.5"], "no row can be trained on: no record (1)"),
        (["--mix", "worse.json:0.5"], "worse.json: is not JSON"),
    ],
)
def test_wrong_input_is_told_and_leaves_no_run(
    words: list[str],
    message: str,
    dataset: Path,
    qwen: Path,
    tmp_path: Path,
    monkeypatch: Any,
    capsys: Any,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {"empty": "[]", "bad": "[7]", "worse": "["}.items():
        (tmp_path / f"{name}.json").write_text(text)
    start = ["train", dataset, "--model", qwen, "--name", "wrong"]
    assert run(*start, *([] if "--objective" in words else ["--objective", "sft"]), *words) == 2
    assert message in capsys.readouterr().err
    assert not (dataset / "runs/wrong/config.yaml").exists()
