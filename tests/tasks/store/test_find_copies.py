"""Finding files beside the tables that name some rows."""

from pathlib import Path

import pytest

from pairwright.tasks.store import find_copies as module
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.find_copies import find_copies
from tests.tasks.store.test_lineage import image
from tests.tasks.store.toy import build_toy

KEY, OTHER = "0123456789abcdef" * 2, "f" * 32


@pytest.mark.parametrize("piece", [8 << 20, 40, 7])
def test_by_name_and_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(module, "READ_BYTES", piece)
    files = {
        f"report/images/{KEY}.png": b"",
        "report/index.html": f"<img src='{KEY}.png'>".encode(),
        "report/other.html": OTHER.encode(),
        "runs/one/rows.arrow": b"\0" * 37 + f"{OTHER}{KEY}{OTHER}".encode(),
        "runs/one/cut.arrow": KEY[1:].encode(),
        "runs/one/checkpoint/model.safetensors": KEY.encode(),
        "work/one/plan.arrow": KEY.encode(),
        "takedowns/000001.json": KEY.encode(),
    }
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    expected = {f"report/images/{KEY}.png", "report/index.html", "runs/one/rows.arrow"}
    assert set(find_copies(Folder(str(tmp_path)), {KEY})) == expected
    assert list(find_copies(Folder(str(tmp_path)), ())) == []


def test_in_excluded_sets(tmp_path: Path) -> None:
    build_toy(tmp_path / "excluded/0123", ["a", "b"])
    found = list(find_copies(Folder(str(tmp_path)), {image("a")}))
    assert [path.split("/")[:4] for path in found] == [["excluded", "0123", "tables", "images"]]
