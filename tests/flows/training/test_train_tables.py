"""Trainings on every written table, with rows of files and of other datasets mixed in, on real
datasets."""

import json

import pytest

import pairwright as pw
from pairwright.flows.training.make_train_config import make_config
from pairwright.flows.training.train_model import prepare_run, train
from pairwright.flows.versions.version import open_version
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training.freeze_rows import FrozenRows
from pairwright.tasks.training.runs import Run
from tests.fixtures.command import run, words_of
from tests.fixtures.pictures import picture
from tests.fixtures.runs_to_train import interrupt, logged, read_lines

FAST = {
    "optimiser.max_steps": 3,
    "optimiser.per_device_train_batch_size": 4,
    "model.lora.rank": 4,
    "output.logging_steps": 1,
    "output.save_steps": 1,
    "output.merge_adapters": "false",
    "data.eval_split": "",
}


@pytest.fixture
def freeze(qwen):
    """Return what begins a run, without training, and returns its rows by split."""

    def begin(dataset, *settings):
        started = Run(dataset / "runs" / "run")
        with started.lock_run():
            config = make_config("sft", settings, model=str(qwen))
            prepare_run(open_version(Folder(str(dataset))), config, started)
        rows = {}
        for split in ("train", "validation", "test"):
            frozen = FrozenRows(folder=Folder(str(dataset)), file=str(started.rows), split=split)
            rows[split] = [frozen.read(position) for position in range(len(frozen))]
        return rows

    return begin


@pytest.mark.parametrize("table", ["comparisons", "captions", "differences"])
def test_rows_have_the_splits_and_the_images_of_their_pairs(copy, freeze, table):
    opened = pw.open(copy)
    pairs = {pair.key: (pair.first, pair.second) for pair in opened["pairs"]}
    splits = {split.subject: split.split for split in opened["splits"]}
    images = {image.key: image.image for image in opened["images"]}
    splits |= {key: splits[pair] for pair, keys in pairs.items() for key in keys}
    texts = {row.key: row for row in opened[table]}
    frozen = freeze(copy, f"data.table={table}", "data.eval_split=test", "data.split=train")
    rows = [row for split in frozen.values() for row in split]
    used = {key for key, row in texts.items() if splits[row.subject] in ("train", "test")}
    assert {row.key for row in rows} == used
    assert len(rows) == len(used) > 3
    for row in rows:
        keys = (row.subject,) if table == "captions" else pairs[row.subject]
        assert row.image_keys == keys
        assert row.images == tuple(images[key] for key in keys)
        assert row.split == splits[row.subject]
        text = texts[row.key]
        assert row.chosen == (text.conversation[-1] if table == "comparisons" else text).text


def test_another_dataset_is_mixed_in_without_what_is_held_out(copy, rendered, freeze):
    """The other one has the same images: its rows are those of this training split again."""
    mix = f"data.mix=['{rendered}:0.5']"
    rows = freeze(copy, "data.table=comparisons", mix, "data.eval_split=test")
    keys = [row.key for row in rows["train"]]
    count = len(keys) // 2
    assert set(keys[:count]) == set(keys[count:])
    held_out, learnt = (
        {key for row in rows[split] for key in row.image_keys} for split in ("test", "train")
    )
    assert held_out.isdisjoint(learnt)
    counts = {"rows": count, "different": count}
    mixed = {"source": str(rendered), "share": 0.5, "version": 1, **counts}
    assert Run(copy / "runs/run").data()["mix"] == [mixed]


def write_llava(folder, *, answer="It is blue."):
    folder.mkdir(exist_ok=True)
    (folder / "1.png").write_bytes(picture(1, size=(48, 40)))
    texts = ("<image>\nWhat is it?", answer, "Sure?", "Yes.")
    turns = [
        {"from": ("human", "gpt")[position % 2], "value": text}
        for position, text in enumerate(texts)
    ]
    records = [{"image": "1.png", "conversations": turns}] * 4
    records += [{"conversations": turns[2:]}, {"image": "../1.png", "conversations": turns}]
    (folder / "mix.json").write_text(json.dumps(records))
    return folder / "mix.json"


def test_a_stopped_run_goes_on_with_the_same_rows(copy, qwen, tmp_path, capsys, monkeypatch):
    """Once with settings, once with the words of the command, relative to where it is called."""
    fitting = "pairwright.tasks.training.fit_preferences"
    monkeypatch.setattr(f"{fitting}.sample_answers", lambda trainer, folder: None)
    mixed = write_llava(tmp_path / "llava")
    settings = [f"{name}={value}" for name, value in FAST.items()]
    settings += ["data.table=comparisons", f"data.mix=['{mixed}:0.6']"]
    config, version = make_config("sft", settings, model=str(qwen)), open_version(Folder(str(copy)))
    whole, stopped = (Run(copy / "runs" / name) for name in ("whole", "stopped"))
    assert train(version, config, name="whole").finished
    with pytest.raises(KeyboardInterrupt):
        train(version, config, name="stopped", watcher=interrupt(2))
    assert stopped.steps() == [1]

    monkeypatch.chdir(tmp_path)
    command = ["train", copy, "--objective", "sft", "--model", qwen, "--name", "stopped"]
    command += ["--table", "comparisons", "--mix", "llava/mix.json:0.6", *words_of(FAST)]
    write_llava(tmp_path / "llava", answer="It is red.")
    assert run(*command) == 2
    assert "mix.json: has changed" in capsys.readouterr().err
    write_llava(tmp_path / "llava")
    assert run(*command) == 0
    keys, expected = (
        FrozenRows(folder=Folder(""), file=str(each.rows), split="train").keys()
        for each in (stopped, whole)
    )
    assert keys == expected
    assert logged(stopped) == logged(whole)

    data = stopped.data()
    (mix,) = data["mix"]
    assert mix["rows"] == round((data["rows"]["train"] - mix["rows"]) / 0.4 * 0.6)
    assert mix["different"] == 5
    refused = {"key": "mix.json#5", "reason": "path leaves the folder", "detail": "../1.png"}
    assert read_lines(stopped.refused) == [refused]
    assert not (stopped.folder / "mixed").exists()


@pytest.mark.parametrize(
    ("objective", "words", "message"),
    [
        ("sft", ["--table", "questions"], "has no questions to train on"),
        ("sft", ["--table", "cheese"], "'comparisons'"),
        ("dpo", ["--table", "captions"], "need objective sft"),
        ("dpo", ["--mix", "x.json:0.5"], "need objective sft"),
        ("sft", ["--mix", "x.json"], "FILE_OR_DATASET:SHARE"),
        ("sft", ["--mix", "x.json:1.5"], "FILE_OR_DATASET:SHARE"),
        ("sft", ["--mix", "x.json:0.0"], "FILE_OR_DATASET:SHARE"),
        ("sft", ["--mix", "x.json:0.5", "--mix", "y.json:0.5"], "no room"),
        ("sft", ["--mix", "nowhere:0.5"], "nowhere: is neither LLaVA's JSON nor a dataset"),
        ("sft", ["--mix", "empty.json:0.5"], "empty.json: no row can be trained on: there is none"),
        ("sft", ["--mix", "bad.json:0.5"], "no row can be trained on: no record (1)"),
        ("sft", ["--mix", "worse.json:0.5"], "worse.json: is not JSON"),
    ],
)
def test_wrong_input_leaves_no_run(
    objective, words, message, dataset, qwen, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    for name, text in {"empty": "[]", "bad": "[7]", "worse": "["}.items():
        (tmp_path / f"{name}.json").write_text(text)
    start = ["train", dataset, "--objective", objective, "--model", qwen, "--name", "wrong"]
    assert run(*start, *words) == 2
    assert message in capsys.readouterr().err
    assert not (dataset / "runs/wrong/config.yaml").exists()
