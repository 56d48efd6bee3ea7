"""Pages of a real build of rendered scenes, and of a report on an object store."""

from pathlib import Path

import pytest

import pairwright as pw
from pairwright.flows.versions.report_dataset import _upload
from pairwright.tasks.store.files import Folder
from tests.tasks.report.pages import lacking, words_of


def test_a_report_of_scenes(rendered: Path) -> None:
    report = pw.open(rendered).report(pairs=20)
    assert report.page == str(rendered / "report/index.html")
    phrases = """
        demo
        Version 1
        Mining against the truth
        Recall of images
        9 images belong to 3 known groups
    """
    assert lacking(words_of((rendered / "report/index.html").read_text()), phrases) == []
    phrases = """
        Chosen scene-graph
        Commonalities and differences
        taken
    """
    assert lacking(words_of((rendered / "report/pairs-1.html").read_text()), phrases) == []


def test_on_an_object_store_the_first_page_comes_last_and_old_files_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder("memory://bucket/dataset")
    for name in ("report/old.html", "report/images/old.png", "tables/kept"):
        folder.write(name, b"old")
    for name in ("index.html", "pairs-1.html", "images/new.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    written = []
    write = Folder.write

    def record(self, name, data):
        written.append(name)
        return write(self, name, data)

    monkeypatch.setattr(Folder, "write", record)
    _upload(tmp_path, folder)
    assert written[-1] == "report/index.html"
    assert folder.names("report") == ["index.html", "pairs-1.html"]
    assert folder.names("report/images") == ["new.png"]
    assert folder.exists("tables/kept")
