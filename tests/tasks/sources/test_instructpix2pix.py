"""Both forms of InstructPix2Pix give the same pairs; odd names, missing files and hostile lists are dropped items."""

import json
import os

import pytest

from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ImageRow, PairRow, make_key
from pairwright.tasks.sources.readers import READERS
from tests.fixtures.pictures import picture
from tests.fixtures.tables import IMAGE, config_of, read_all, reasons_of, struct, write_table

KIND = "instructpix2pix"
DATA = [picture(seed, kind="JPEG") for seed in range(8)]


def write_folder(root):
    """Write two prompts with three samples, one of them as the generator writes prompts, and what the scripts leave."""
    root.mkdir(parents=True)
    samples = {"0000000": (11, 12), "0000007": (5,)}
    prompts = {
        "0000000": {"edit": "make it snow", "input": "a field", "output": "a field in snow"},
        "0000007": {"edit": "add a hat", "caption": "a man", "output": "a man with a hat", "url": "x"},
    }
    images = iter(DATA)
    for name, seeds in samples.items():
        (root / name).mkdir()
        (root / name / "prompt.json").write_text(json.dumps(prompts[name]))
        for seed in seeds:
            for side in (0, 1):
                (root / name / f"{seed}_{side}.jpg").write_bytes(next(images))
            with (root / name / "metadata.jsonl").open("a") as file:
                file.write(json.dumps({"seed": seed, "clip_sim_0": 0.21, "clip_sim_image": 0.8}) + "\n")
    (root / "seeds.json").write_text(json.dumps([[name, list(seeds)] for name, seeds in samples.items()]))
    return root


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "clip-filtered-dataset")


def test_a_sample_of_the_folder_becomes_a_pair(folder):
    items, found = read_all(config_of(KIND, folder))
    assert list(found) == ["0000000/11", "0000000/12", "0000007/5"]
    first, second, pair = found["0000000/11"]
    assert isinstance(first, ImageRow)
    assert isinstance(pair, PairRow)
    assert (first.key, second.key) == (make_key(DATA[0]), make_key(DATA[1])) == (pair.first, pair.second)
    assert (first.captions, second.captions) == (("a field",), ("a field in snow",))
    assert (pair.origin, pair.instruction, pair.human_differences) == ("edit", "make it snow", ())
    assert {row.group for rows in found.values() for row in rows if isinstance(row, ImageRow)} == {"0000000", "0000007"}
    assert first.name == "0000000/11_0.jpg"
    assert {row.source_key for row in (first, second, pair)} == {items[0].key}
    before, after, pair = found["0000007/5"]
    assert (before.captions, after.captions, pair.instruction) == (("a man",), ("a man with a hat",), "add a hat")


def test_the_table_of_the_hub_gives_the_same(folder, tmp_path):
    columns = {
        "original_prompt": ["a field", "a field", "a man", "x"],
        "original_image": [struct(DATA[n]) for n in (0, 2, 4, 6)],
        "edit_prompt": ["make it snow", "make it snow", "add a hat", None],
        "edited_prompt": ["a field in snow", "a field in snow", "a man with a hat", "y"],
        "edited_image": [struct(DATA[n]) for n in (1, 3, 5, 7)],
    }
    types = {"original_image": IMAGE, "edited_image": IMAGE}
    write_table(tmp_path / "hub/data/train-00000-of-00001-1a2b.parquet", columns, types=types)
    rows = list(read_all(config_of(KIND, folder))[1].values())
    _, found = read_all(config_of(KIND, tmp_path / "hub"))
    assert reasons_of(found) == {"data/train-00000-of-00001-1a2b.parquet#3": "damaged prompt"}
    tables = list(found.values())[:3]
    assert [[row.key for row in one] for one in rows] == [[row.key for row in one] for one in tables]
    assert [[row.captions for row in one[:2]] for one in rows] == [[row.captions for row in one[:2]] for one in tables]
    groups = [one[0].group for one in tables]
    assert groups[0] == groups[1] != groups[2]


def test_bad_samples_are_dropped_one_by_one(folder, tmp_path):
    (tmp_path / "secret_0.jpg").write_bytes(DATA[6])
    (folder / "0000000/12_1.jpg").write_bytes(b"")
    (folder / "0000007/prompt.json").write_text("[" * 10**5)
    (folder / "0000001").mkdir()
    (folder / "0000001/prompt.json").write_text('{"edit": "x", "input": "\\ud800", "output": "y"}')
    for side in (0, 1):
        (folder / f"0000001/1_{side}.jpg").write_bytes(DATA[side])
    (folder / "0000002").mkdir()
    (folder / "0000002/prompt.json").write_text('{"edit": "x"}')
    (folder / "0000002/3_0.jpg").symlink_to(tmp_path / "secret_0.jpg")
    os.mkfifo(folder / "0000002/4_0.jpg")
    entries = [
        ["0000000", [11, 12]],
        ["0000007", [5]],
        [1, [1]],
        ["0000002", [3, 4]],
        ["..", ["secret"]],
        ["/etc", [1]],
        ["0000000", ["../11"]],
        ["\ud800", [1]],
        ["none", [1]],
        "nonsense",
        ["0000000", 7],
        ["0000000", [None]],
    ]
    (folder / "seeds.json").write_text(json.dumps(entries))
    _, found = read_all(config_of(KIND, folder))
    assert reasons_of(found) == {
        "0000000/12": "empty file",
        "0000007/5": "damaged prompt",
        "0000002/3": "path leaves the folder",
        "0000002/4": "not a regular file",
        "../secret": "path leaves the folder",
        "/etc/1": "path leaves the folder",
        "0000000/../11": "path leaves the folder",
        r"\ud800/1": "path leaves the folder",
        "none/1": "damaged prompt",
        "seeds.json entry 9": "damaged entry",
        "seeds.json entry 10": "damaged entry",
        "seeds.json entry 11": "damaged entry",
    }
    assert len(found["0000000/11"]) == 3


def test_keys_follow_the_files(folder):
    config = config_of(KIND, folder)
    items, _ = read_all(config)
    assert read_all(config, 2)[0] == items[:2]
    folder.rename(folder.parent / "moved")
    assert read_all(config_of(KIND, folder.parent / "moved"))[0] == items
    os.utime(folder.parent / "moved/0000000/11_1.jpg", ns=(1, 1))
    changed = read_all(config_of(KIND, folder.parent / "moved"))[0]
    assert [a.key == b.key for a, b in zip(items, changed, strict=True)] == [False, True, True]
    (folder.parent / "moved/0000007/5_0.jpg").write_bytes(DATA[7])
    rows = list(READERS[KIND].read_items(changed, config_of(KIND, folder.parent / "moved")))
    assert rows[-1].reason == "changed since it was listed"


@pytest.mark.parametrize("text", ["[]", "{}", "no", ""])
def test_a_list_of_nothing_is_a_source_error(tmp_path, text):
    (tmp_path / "seeds.json").write_text(text)
    with pytest.raises(SourceError, match=str(tmp_path)):
        read_all(config_of(KIND, tmp_path))


def test_a_missing_folder_an_unknown_split_and_a_folder_of_neither_form_are_source_errors(folder, tmp_path):
    with pytest.raises(SourceError, match="nowhere"):
        read_all(config_of(KIND, tmp_path / "nowhere"))
    with pytest.raises(SourceError, match=r"reading\.splits"):
        read_all(config_of(KIND, folder, splits=("train",)))
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match=r"empty: .*Parquet"):
        read_all(config_of(KIND, tmp_path / "empty"))
