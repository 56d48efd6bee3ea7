"""ms-swift's rules for preferences, after its documentation of custom datasets."""

from dataclasses import replace

from tests.fixtures.exports import export_some, files_of, lines_of, preference


def test_a_preference_that_rejects_both_gives_two_lines(tmp_path):
    row = preference(1, rejected_images=2)
    tally = export_some(tmp_path, [row], form="ms-swift")
    (text,) = lines_of(tmp_path, "train")
    (image,) = lines_of(tmp_path, "train-images")
    assert text["messages"] == [
        {"role": "user", "content": "<image><image>What differs?"},
        {"role": "assistant", "content": row.chosen},
    ]
    assert text["rejected_response"] == row.rejected
    assert set(text) == {"messages", "images", "rejected_response"}
    assert set(image) == {"messages", "images", "rejected_images"}
    assert (image["messages"], image["images"]) == (text["messages"], text["images"])
    files = files_of(tmp_path)
    assert tuple(files[name] for name in image["images"]) == row.images
    assert tuple(files[name] for name in image["rejected_images"]) == row.rejected_images
    assert {name: rows for name, (rows, _) in tally.sizes.items()} == {
        "train": 1,
        "train-images": 1,
    }
    size = sum(len(data) for name, data in files.items() if "/" in name)
    assert sum(size for _, size in tally.sizes.values()) == size


def test_the_image_that_was_left_as_it_is_is_the_same_file(tmp_path):
    row = preference(1, rejected_images=2)
    rejected = (row.images[0], row.rejected_images[1])
    row = replace(row, rejected_images=rejected, rejected="", rejected_maker="")
    export_some(tmp_path, [row], form="ms-swift")
    (line,) = lines_of(tmp_path, "train-images")
    assert line["rejected_images"][0] == line["images"][0]
    assert line["rejected_images"][1] != line["images"][1]
    assert not (tmp_path / "data/train.jsonl").exists()
