"""``pairwright export --negatives RUN``: the rows that a training with these negatives sees, and what is refused."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.images import decode_rgb
from pairwright.tasks.training.freeze_rows import FILE, FrozenRows
from tests.fixtures.command import run, words_of

FAST = {
    "optimiser.max_steps": 1,
    "model.lora.rank": 4,
    "output.merge_adapters": "false",
    "adpo.warmup_steps": 5,
    "adpo.projection_dim": 16,
    "data.max_eval_rows": 1,
    "data.dataloader_num_workers": 0,
}


class Dataset:
    """Train on a dataset and export it."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder, self.model = folder, model

    def train(self, objective: str, name: str, *others: object, **settings: object) -> int:
        words = ["--objective", objective, "--name", name, "--model", self.model, *others]
        return run("train", self.folder, *words, *words_of({**FAST, **settings}))

    def export(self, target: Path, *words: object) -> int:
        return run("export", self.folder, "--to", target, *words)

    def seen(self, name: str) -> dict[str, PreferenceRow]:
        """Return the rows that a training has frozen, trained on and held out, by key."""
        folder, file = Folder(str(self.folder)), str(self.folder / "runs" / name / FILE)
        splits = [FrozenRows(folder=folder, file=file, split=split) for split in ("train", "validation")]
        rows = [rows.read(place) for rows in splits for place in range(len(rows))]
        return {row.key: row for row in rows}

    def tables(self) -> list[Path]:
        return sorted((self.folder / "tables").rglob("*.parquet"))


@pytest.fixture(scope="module")
def dataset(rendered: Path, qwen: Path, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Return a dataset with a finished ADPO run that has not mined, and one that has no retriever."""
    root = tmp_path_factory.mktemp("mined")
    made = Dataset(Path(shutil.copytree(rendered, root / "demo")), qwen)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PREFECT_API_URL", raising=False)
        assert made.train("adpo", "hard") == 0
        assert made.train("sft", "plain") == 0
    return made


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


def test_what_is_not_mined_yet_is_not_exported(
    dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = dataset.tables()
    assert dataset.export(tmp_path / "out", "--negatives", "hard") == 2
    error = said(capsys)
    assert re.search(r"--negatives hard: .*\b([1-9]\d*) of \1 preferences", error)
    assert f"pairwright train {dataset.folder} --objective dpo --set negatives_from=hard" in error
    assert dataset.tables() == before, "an export makes nothing"
    assert not (tmp_path / "out").exists()


def test_the_rows_are_those_of_a_training_with_these_negatives(
    dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    assert dataset.train("dpo", "on-mined", negatives_from="hard") == 0
    assert dataset.export(tmp_path / "own") == 0
    assert dataset.export(tmp_path / "mined", "--negatives", "hard") == 0
    capsys.readouterr()
    loaded = datasets.load_dataset(str(tmp_path / "mined"), cache_dir=str(tmp_path / "cache"))
    own = datasets.load_dataset(str(tmp_path / "own"), cache_dir=str(tmp_path / "cache"))
    rows = {row["key"]: (split, row) for split, some in loaded.items() for row in some}
    seen = dataset.seen("on-mined")
    assert seen.keys() == {key for key, (split, _) in rows.items() if split in ("train", "validation")}
    for key, given in seen.items():
        split, row = rows[key]
        assert (split, row["chosen"][0]["content"][0]["text"]) == (given.split, given.chosen)
        assert (row["rejected"][0]["content"][0]["text"], row["rejected_maker"]) == (given.rejected, "mined")
        assert [one["text"] for one in row["negatives"]] == [one.text for one in given.negatives]
        for shown, image in zip(row["images"], given.images, strict=True):
            assert np.array_equal(np.asarray(shown), decode_rgb(image))
    assert {row["pair"] for some in own.values() for row in some} == {row["pair"] for _, row in rows.values()}
    assert {row["rejected_maker"] for some in own.values() for row in some}.isdisjoint({"mined"})
    card = " ".join((tmp_path / "mined/README.md").read_text().split())
    assert "retriever of the training run `hard`" in card
    assert f"(mined: {len(rows)})" in card
    assert "*retrieved*" not in card
    assert "*mined*" not in (tmp_path / "own/README.md").read_text()
