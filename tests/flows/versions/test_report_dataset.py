"""Pages of real builds, small: rendered scenes through the whole line, and photographs as far as
mining."""

import pairwright as pw
from pairwright.flows.versions.report_dataset import _upload
from pairwright.tasks.store.files import Folder
from tests.tasks.report.pages import lacking, words_of


def pages_of(dataset, pairs):
    """Write a report; return it with the words of its first page and of the first pairs."""
    report = pw.open(dataset).report(pairs=pairs)
    assert report.page == str(dataset / "report/index.html")
    files = (dataset / "report" / name for name in ("index.html", "pairs-1.html"))
    return report, *(words_of(file.read_text()) for file in files)


def test_a_report_of_scenes(rendered):
    _, index, pairs = pages_of(rendered, pairs=20)
    phrases = """
        demo
        Version 1
        Mining against the truth
        Recall of images
        Rejected images
        9 images belong to 3 known groups
    """
    assert lacking(index, phrases) == []
    phrases = """
        Chosen scene-graph
        Rejected
        Commonalities and differences
        Conversation
        taken
    """
    assert lacking(pairs, phrases) == []


def test_a_report_of_photographs_that_stopped_at_mining(mined):
    report, index, pairs = pages_of(mined, pairs=12)
    assert report.pairs == 12
    assert "Similarity of the pairs" in index
    absent = ["Mining against the truth", "Rejected images", "Lengths"]
    assert lacking(index, "\n".join(absent)) == absent
    absent = ["Chosen", "Captions", "Show what changed"]
    assert lacking(pairs, "\n".join(absent)) == absent


def test_on_an_object_store_the_first_page_comes_last_and_old_files_go(tmp_path, monkeypatch):
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
