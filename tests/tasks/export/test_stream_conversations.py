"""Conversations come with the images and the split of their pair."""

from pathlib import Path

from pairwright.tasks.export.stream_conversations import stream_conversations
from tests.tasks.report.handmade import build_handmade, make_whole


def read(root: Path, until: str) -> dict:
    with build_handmade(root, make_whole(), until=until) as (build, _):
        stages = {planned.stage.name: planned for planned in build.planned}
        return {row.key: row for rows in stream_conversations(build, stages) for row in rows}


def test_a_conversation_rejects_nothing_and_has_its_pairs_images(tmp_path: Path) -> None:
    made = make_whole()
    found = read(tmp_path, "preferences")
    pairs = {pair.key: pair for pair in made.of("pairs")}
    images = {image.key: image for image in made.of("images")}
    splits = {split.subject: split.split for split in made.of("splits")}
    assert found.keys() == {row.key for row in made.of("comparisons")}
    for row in made.of("comparisons"):
        given, pair = found[row.key], pairs[row.subject]
        assert (*given.prompt, given.chosen) == (*row.conversation[:-1], row.conversation[-1].text)
        assert given.images == (images[pair.first].image, images[pair.second].image)
        assert given.licences == (images[pair.first].licence, images[pair.second].licence)
        assert (given.rejected, given.rejected_images, given.split) == ("", (), splits[row.subject])


def test_without_splits_all_are_for_training(tmp_path: Path) -> None:
    found = read(tmp_path, "comparisons")
    assert len(found) == len(make_whole().of("comparisons"))
    assert {row.split for row in found.values()} == {"train"}
