"""Preferences that a source brought get rejected images: the whole line on a tiny set, report and export included."""

import io
import json
import socket
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from flows import cli
from flows.export_dataset import export_dataset
from flows.report_dataset import report_dataset
from tasks.store.files import Folder
from tests.fixtures.builds import ok_rows
from tests.fixtures.checkpoints import READING_CLIP, write_clip_folder
from tests.fixtures.pictures import picture
from tests.fixtures.tables import IMAGE, struct, write_table

DATA = [picture(seed, kind="JPEG", size=(96, 64)) for seed in range(3)]
CHOSEN = ["A dog sits on a table. The table is red.", "On a lawn.", "A cat beside a cup.", "A ball."]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("rlaif")
    columns = {
        "image": [struct(DATA[n], f"{n}.jpg") for n in (0, 0, 1, 2)],
        "question": ["What is it?", "Where?", "What is it?", "What?"],
        "chosen": CHOSEN,
        "rejected": ["A horse.", "In a pool.", "Two cats.", "A cube."],
    }
    write_table(folder / "RLAIF-V-Dataset_000.parquet", columns, types={"image": IMAGE})
    return f"rlaif-v:{folder}"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return words of the command line for CLIP, tiny, to choose."""
    clip = write_clip_folder(tmp_path_factory.mktemp("models") / "clip", architecture=READING_CLIP)
    fields = ["embedding.embedders=[gradients, clip]", f"embedding.clip.checkpoint={clip}", "embedding.batch=8"]
    return [word for field in (*fields, "rejections.scorer=clip", "run.workers=1") for word in ("--set", field)]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no Prefect server and no network."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *words, **_: pytest.fail(f"goes to the network: {words}"))


def run(*words: object) -> int:
    """Run the command line as a shell would; return its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["pairwright", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    return int(ended.value.code or 0)


def counts_of(out: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    capsys.readouterr()
    assert run("status", out, "--json") == 0
    return {stage["stage"]: stage for stage in json.loads(capsys.readouterr().out)["stages"]}


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def test_random_crops_where_nothing_can_be_removed(
    source: str, settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tagger of rendered scenes names nothing here."""
    out = tmp_path / "out"
    words = ["build", source, "--out", out, *settings, "--set", "rejections.fallback=crop"]
    assert run(*words, "--until", "rejected") == 0
    assert "preferences" not in counts_of(out, capsys)
    assert run(*words) == 0
    counts = counts_of(out, capsys)
    assert list(counts)[:3] == ["images", "given", "embeddings"]
    assert (counts["given"]["rows"], counts["preferences"]["rows"], counts["rejections"]["rows"]) == (4, 4, 4)
    assert counts["tags"]["reasons"] == {"no tags": 3}
    assert counts["rejections"]["reasons"] == {"no element can be removed: a crop instead": 4}
    rows = {row["chosen"]: row for row in ok_rows(out, "preferences")}
    assert set(rows) == set(CHOSEN)
    for row in rows.values():
        (shown,), (rejected,) = row["images"], row["rejected_images"]
        assert row["rejected_image_maker"] == "crop"
        assert pixels(rejected).shape == pixels(shown).shape
        assert np.abs(pixels(rejected).astype(int) - pixels(shown)).mean() > 1
    assert rows[CHOSEN[0]]["rejected_images"] != rows[CHOSEN[1]]["rejected_images"], "each has a crop of its own"
    report_dataset(Folder(str(out)), pairs=4)
    assert "Each is about one image." in (out / "report/index.html").read_text()
    tally = export_dataset(Folder(str(out)), str(tmp_path / "hf"), form="hf")
    assert (tally.rows, tally.rejected_images, tally.crops) == (4, 4, 4)
    assert run("resume", out) == 0
    assert run("status", out, "--refused", "tags") == 0
    assert "no tags" in capsys.readouterr().out


def test_preferences_without_a_rejected_image_may_be_dropped(
    source: str, settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run("build", source, "--out", out, *settings, "--set", "rejections.fallback=drop") == 0
    counts = counts_of(out, capsys)
    assert counts["rejections"]["reasons"] == counts["preferences"]["reasons"] == {"no rejected image": 4}
    assert run("status", out, "--refused", "rejections") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3, "two of them are about one image, and say the same"
    assert all(line.startswith("dropped\tno rejected image\t") for line in lines)
    assert all(line.endswith(": no element can be removed") for line in lines)
    # Another way out needs no image to be looked at again.
    assert run("build", source, "--out", out, *settings) == 0
    again = counts_of(out, capsys)
    assert again["preferences"]["rows"] == 4
    assert {name for name in again if again[name]["fingerprint"] != counts[name]["fingerprint"]} == {
        "rejections",
        "preferences",
    }


def test_missing_weights_are_told_before_anything_is_done(
    source: str, settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also when only what comes of them is to be made again."""
    clip = write_clip_folder(tmp_path / "clip", architecture=READING_CLIP)
    own = [*settings, "--set", f"embedding.clip.checkpoint={clip}"]
    out = tmp_path / "out"
    assert run("build", source, "--out", out, *own) == 0
    (clip / "open_clip_model.safetensors").unlink()
    for stage in ("fitted", "rejections", "embeddings", "rejected"):
        capsys.readouterr()
        assert run("resume", out, "--stage", stage) == 2
        assert "embedding.clip.checkpoint" in capsys.readouterr().err
