"""Pages of real builds, small: rendered scenes through the whole line, and photographs as far as
mining."""

import re
from pathlib import Path

import pairwright as pw
from pairwright.flows.versions.report_dataset import _upload
from pairwright.tasks.store.files import Folder


def text_of(path: Path) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", path.read_text()).split())


def test_reports_of_scenes_and_of_photographs(rendered, mined):
    pages = pw.open(rendered).report(pairs=20)
    index, pairs = (
        text_of(rendered / "report/index.html"),
        text_of(rendered / "report/pairs-1.html"),
    )
    assert pages.page == str(rendered / "report/index.html")
    for words in (
        "demo",
        "Version 1",
        "Mining against the truth",
        "Recall of images",
        "Rejected images",
    ):
        assert words in index
    assert "9 images belong to 3 known groups" in index
    for words in (
        "Chosen scene-graph",
        "Rejected",
        "Commonalities and differences",
        "Conversation",
        "taken",
    ):
        assert words in pairs
    pages = pw.open(mined).report(pairs=12)
    assert pages.pairs == 12
    index, pairs = text_of(mined / "report/index.html"), text_of(mined / "report/pairs-1.html")
    assert "Similarity of the pairs" in index
    for words in ("Mining against the truth", "Rejected images", "Lengths"):
        assert words not in index
    for words in ("Chosen", "Captions", "Show what changed"):
        assert words not in pairs


def test_on_an_object_store_the_first_page_comes_last_and_old_files_go(tmp_path, monkeypatch):
    folder = Folder("memory://bucket/dataset")
    folder.write("report/old.html", b"old")
    folder.write("report/images/old.png", b"old")
    folder.write("tables/kept", b"kept")
    for name in ("index.html", "pairs-1.html", "images/new.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    written = []
    monkeypatch.setattr(
        Folder,
        "write",
        lambda self, name, data, write=Folder.write: (
            written.append(name) or write(self, name, data)
        ),
    )
    _upload(tmp_path, folder)
    assert written[-1] == "report/index.html"
    assert folder.names("report") == ["index.html", "pairs-1.html"]
    assert folder.names("report/images") == ["new.png"]
    assert folder.exists("tables/kept")
