"""What is still to be fetched: names, sizes less what has come, and room by disk."""

import shutil

import pytest

from pairwright.tasks.models.fetching.lacking_weights import Lacking, find_lacking, find_room
from pairwright.tasks.models.fetching.published import PublishedFile
from pairwright.tasks.models.weights import HubFiles, find_on_hub
from tests.fixtures.file_server import serving_files, use_as_hub

FILES = HubFiles(
    field="f",
    repository="owner/model",
    revision="",
    weights=("model.safetensors", "pytorch_model.bin"),
    beside=("config.json",),
)


@pytest.fixture
def web(tmp_path, monkeypatch):
    with serving_files() as running:
        use_as_hub(monkeypatch, running, tmp_path / "hub")
        monkeypatch.setenv("PAIRWRIGHT_CACHE", str(tmp_path / "cache"))
        yield running


def test_of_alternatives_the_one_that_is_there_counts(web, tmp_path):
    web.put_on_hub("owner/model", "pytorch_model.bin", bytes(5000))
    web.put_on_hub("owner/model", "config.json", bytes(70), small=True)
    hub = tmp_path / "hub"
    config = Lacking(file="config.json", size=70, folder=hub)
    assert find_lacking(FILES) == [config, Lacking(file="pytorch_model.bin", size=5000, folder=hub)]
    find_on_hub(FILES, download=True)
    assert find_lacking(FILES) == []


def test_without_an_answer_a_size_is_not_known(web, tmp_path):
    hub = tmp_path / "hub"
    assert find_lacking(FILES) == [
        Lacking(file="config.json", size=0, folder=hub),
        Lacking(file="model.safetensors", size=0, folder=hub),
    ]
    (missing,) = find_lacking(PublishedFile(field="f", name="a.pth", url=f"{web.address}/nowhere"))
    assert missing == Lacking(file="a.pth", size=0, folder=tmp_path / "cache" / "weights")


def test_what_has_come_is_not_to_come(web, tmp_path):
    wanted = PublishedFile(field="f", name="a.pth", url=web.put("/a.pth", bytes(5000)))
    folder = tmp_path / "cache" / "weights"
    assert find_lacking(wanted) == [Lacking(file="a.pth", size=5000, folder=folder)]
    folder.mkdir(parents=True)
    (folder / "a.pth.part").write_bytes(bytes(1500))
    assert find_lacking(wanted) == [Lacking(file="a.pth", size=3500, folder=folder)]
    (folder / "a.pth").write_bytes(b"")
    assert find_lacking(wanted) == []


def test_room_is_counted_by_disk(tmp_path):
    one, other = tmp_path / "one" / "deep", tmp_path / "other"
    lacking = [
        Lacking(file=name, size=size, folder=folder)
        for name, size, folder in (("a", 10, one), ("b", 20, other), ("c", 0, one))
    ]
    (room,) = find_room(lacking)
    assert (room.folders, room.files, room.size, room.unknown) == ((one, other), 3, 30, 1)
    assert abs(room.free - shutil.disk_usage(tmp_path).free) < 10**9
    assert find_room([]) == []
