"""The page of a run: everything is on it, nothing is interpreted, it looks right in a browser."""

import json
import re
from dataclasses import asdict
from html import unescape
from pathlib import Path

import pytest

from pairwright.schemas.errors import ConfigError, StoreError
from pairwright.tasks.training.report.write_run_page import (
    read_samples,
    write_run_page,
    write_samples,
)
from tests.tasks.report.browser import broken_images, open_chromium, open_page
from tests.tasks.report.pages import PHONE, Reader
from tests.tasks.training.report.handmade_run import (
    HOSTILE,
    LONG,
    begin,
    make_png,
    make_run,
    make_samples,
)

WIDE = {"viewport": {"width": 1240, "height": 900}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "adpo <b>"
    make_run(run)
    write_run_page(run)
    return run / "report"


def text_of(folder):
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", (folder / "index.html").read_text())).split())


def test_it_is_well_formed_and_refers_only_to_what_is_beside_it(folder):
    page = Reader((folder / "index.html").read_text())
    assert len(page.ids) == len(set(page.ids))
    for link in page.links:
        file, _, mark = link.partition("#")
        assert (folder / (file or "index.html")).is_file(), link
        assert not mark or mark in page.ids, link
    beside = sorted(path.name for path in folder.iterdir())
    assert beside == ["images", "index.html", "report.css", "run.css"]


def test_texts_are_shown_not_interpreted(folder):
    page = Reader((folder / "index.html").read_text())
    assert not [tag for tag, _ in page.tags if tag == "script"]
    attributes = {name for _, names in page.tags for name in names}
    assert not [name for name in attributes if name.startswith("on") or "onerror" in name]
    assert "style" not in attributes
    # Prompts and references of two samples, one rejected text, a metric, an alarm, a common
    # negative.
    assert page.text.count(HOSTILE) >= 2 + 2 + 1 + 1 + 1 + 1
    assert "adpo <b>" in page.text
    assert "scenes <b>" in page.text
    assert "/data/of" not in page.text


def test_what_is_known_of_a_run_is_on_its_page(folder):
    text = text_of(folder)
    for phrase in (
        "adpo · tiny · full · from sft",
        "steps 1,000", "epochs 10", "held-out accuracy 75% of 8 (41% to 93%)",
        "Entropy", "Effective candidates", "Doubtful negatives", "Learning rate", "Gradient norm",
        "training, as logged every 5 steps",
        "The retriever: generic negatives. one text is 12%",
        "1,000 steps; 4,321 texts to choose from",
        "The model One is red, the other one is blue.", "The model (nothing)",
        "snapshot 3",
        "optimiser.per_device_train_batch_size 2 4", "model.tuning full lora",
        "output.save_steps 100 500", "61 rows;", "too long 60 98.4%",
    ):  # fmt: skip
        assert phrase in text, phrase
    assert "Not finished" not in text
    assert LONG in text


def test_only_settings_that_differ_are_listed_and_all_are_in_full(folder):
    table, whole = text_of(folder).split("All settings (config.yaml)")
    assert "optimiser.warmup_ratio" not in table
    assert "warmup_ratio: 0.1" in whole


def test_a_run_that_has_just_begun_has_a_page(tmp_path):
    begin(tmp_path / "sft", objective="sft", start="")
    text = text_of(write_run_page(tmp_path / "sft").parent)
    assert "Not finished." in text
    assert "Nothing logged" in text


def test_a_folder_that_is_no_run_is_refused_and_left_alone(tmp_path):
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        write_run_page(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content"),
    [("data.json", "[1, 2"), ("refused.jsonl", "7\n"), ("samples/samples.jsonl", '{"key": 1}\n')],
)
def test_a_damaged_file_is_named(tmp_path, name, content):
    begin(tmp_path / "run")
    path = tmp_path / "run" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    with pytest.raises(StoreError, match=path.name):
        write_run_page(tmp_path / "run")


def test_samples_come_back_and_their_images_are_kept_once(tmp_path):
    write_samples(tmp_path, make_samples())
    rows = read_samples(tmp_path)
    images = [row.pop("images") for row in rows]
    written = [asdict(sample) for sample in make_samples()]
    assert rows == [{name: row[name] for name in row if name != "images"} for row in written]
    assert images[0][:1] == images[1]
    assert len(list((tmp_path / "samples").glob("*.png"))) == 2


def test_a_sample_cannot_name_a_file_elsewhere(tmp_path):
    run = begin(tmp_path / "run").folder
    (tmp_path / "secret.png").write_bytes(make_png("red"))
    write_samples(run, make_samples())
    lines = (run / "samples" / "samples.jsonl").read_text().splitlines()
    row = json.loads(lines[0]) | {"images": ["../../secret.png"]}
    (run / "samples" / "samples.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(StoreError, match=r"samples\.jsonl"):
        write_run_page(run)
    assert not (run / "report").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [WIDE, {**WIDE, "color_scheme": "dark"}, PHONE], ids=["light", "dark", "phone"]
)
def test_it_looks_right_in_a_browser(folder, options):
    contrast = (Path(__file__).parents[2] / "report" / "contrast.js").read_text()
    with (
        open_chromium() as browser,
        open_page(browser, folder / "index.html", **options) as (page, watched),
    ):
        assert watched.complaints == []
        assert watched.from_elsewhere == []
        assert broken_images(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= options["viewport"]["width"]
        assert page.evaluate(contrast) == []
        assert (
            page.locator("figure.lines svg").count() == page.locator("figure.lines").count() >= 12
        )
        assert page.locator("path.held").first.is_visible()
