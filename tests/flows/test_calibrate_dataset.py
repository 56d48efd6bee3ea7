"""The calibration page of a real build, small: photographs as far as mining."""

import re

import pytest

import pairwright as pw
from pairwright.flows.version import open_present
from pairwright.schemas.config import BuildRecord, Profile, resolve
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.store.dataset import write_record
from pairwright.tasks.store.files import Folder
from tests.fixtures.photographs import write_photographs
from tests.flows.conftest import build
from tests.flows.test_cli import run
from tests.tasks.report.browser import broken_images, open_chromium, open_page

NO_CANDIDATE = ("set below", "no candidate", "no neighbours", "only near-identical")


@pytest.fixture(scope="module")
def calibrated(mined):
    made = pw.open(mined).calibrate(per_bin=4, width=0.05)
    return mined, made


def test_the_present_cell_counts_what_mining_kept(calibrated):
    folder, _ = calibrated
    page = (folder / "calibrate/index.html").read_text()
    anchors, candidates = re.search(r'aria-label="(\d+) images, (\d+) candidates: the present', page).groups()
    (pairs,) = [count for count in open_present(Folder(str(folder))).counts() if count.stage == "similar_pairs"]
    refused = sum(number for reason, number in pairs.reasons.items() if reason.startswith(NO_CANDIDATE))
    assert int(anchors) == pairs.of - refused > 0
    assert int(candidates) >= pairs.rows
    assert f"pairwright refilter {folder} --set mining.min_similarity=0.65" in page


def test_the_page_opens_from_disk_and_shows_as_many_pairs_as_it_says(calibrated):
    folder, made = calibrated
    with open_chromium() as browser, open_page(browser, folder / "calibrate/index.html") as (page, watched):
        keys = page.evaluate("[...document.querySelectorAll('.case')].map((one) => one.dataset.pair)")
        assert len(set(keys)) == made.pairs > 20
        assert page.locator(".bin").count() == made.bins
        assert page.locator(".case .paired").count() > 0
        assert broken_images(page) == []
        assert watched.complaints == []
        assert watched.from_elsewhere == []


def test_a_report_leaves_the_page_and_the_page_the_report(calibrated):
    folder, _ = calibrated
    pw.open(folder).report(pairs=3)
    assert (folder / "calibrate/index.html").is_file()
    (folder / "calibrate/old.html").write_text("old")
    pw.open(folder).calibrate(per_bin=2, width=0.05)
    assert not (folder / "calibrate/old.html").exists()
    assert (folder / "report/index.html").is_file()


def test_the_verb_says_what_to_open(mined, capsys):
    assert run("calibrate", mined, "--per-bin", 2) == 0
    printed = capsys.readouterr().out
    assert re.search(rf"\d+ in \d+ bins.* {mined}/calibrate/index.html", printed)


def test_a_dataset_not_built_so_far_is_wrong_usage_and_the_message_says_how_to_go_on(tmp_path, capsys):
    write_photographs(tmp_path / "in", variants=1)
    out = build(tmp_path / "it's out", str(tmp_path / "in"), until="sources", settings=["run.workers=1"])
    assert run("calibrate", out) == 2
    message = capsys.readouterr().err
    assert f"pairwright build folder:{tmp_path}/in --out '{tmp_path}/it'\"'\"'s out' --until mining" in message
    assert not (out / "calibrate").exists()


def test_a_source_that_brings_its_pairs_has_no_thresholds(tmp_path):
    folder = Folder(str(tmp_path))
    profile = Profile(source="clevr-change:/somewhere")
    write_record(folder, BuildRecord(items=(), profile=resolve(profile, {}), limit=None, until="mining"))
    with pytest.raises(ConfigError, match="clevr-change"):
        pw.open(folder.url).calibrate(per_bin=2, width=0.02)
