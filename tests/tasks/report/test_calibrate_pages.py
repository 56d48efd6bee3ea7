import json
import re
from pathlib import Path

import pytest
from PIL import Image

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.report.calibrate_pages import write_calibration
from tests.tasks.report.browser import broken_images, open_chromium, open_page, overflows
from tests.tasks.report.handmade import HOSTILE
from tests.tasks.report.handmade_neighbours import (
    EMBEDDERS,
    MINING,
    build_neighbours,
    make_five,
    make_neighbours,
    pair_key,
    subject,
)
from tests.tasks.report.pages import PHONE, Reader

P, Q = EMBEDDERS


def write(root: Path, rows=None, **changes) -> Path:
    images = make_five()
    with build_neighbours(root / "dataset", images, make_neighbours(images) if rows is None else rows) as build:
        (root / "calibrate").mkdir()
        write_calibration(build, root / "calibrate", subject=subject(**changes))
    return root / "calibrate"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def browser():
    with open_chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def images():
    return make_five()


def texts(page, selector):
    return [" ".join(one.split()) for one in page.locator(selector).all_text_contents()]


def judge(page, key, verdict):
    page.locator(f'.case[data-pair="{key}"]').first.locator(f'[data-verdict="{verdict}"]').click()


def tally_of(page, bin_id):
    return texts(page, f'tr[data-of="{bin_id}"] > *')


def bins_of(page, encoder):
    return page.evaluate(
        """(name) => {
            const sheet = [...document.querySelectorAll(".sheet")].find((one) => one.dataset.encoder === name);
            const keys = (bin) => [...bin.querySelectorAll(".case")].map((one) => one.dataset.pair);
            return [...sheet.querySelectorAll(".bin")].map(
                (bin) => [bin.dataset.low, bin.dataset.high, bin.dataset.side, bin.id, keys(bin)]);
        }""",
        encoder,
    )


def test_the_page_is_well_formed_and_refers_to_what_is_there(folder):
    page = Reader((folder / "index.html").read_text())
    assert len(page.ids) == len(set(page.ids))
    for link in page.links:
        file, _, mark = link.partition("#")
        assert not re.match(r"[a-z]+:|/", link), f"{link} leaves the page"
        assert (folder / (file or "index.html")).is_file(), link
        assert not mark or mark in page.ids, link
    used = {link.partition("/")[2] for link in page.links if link.startswith("images/")}
    assert used == {path.name for path in (folder / "images").iterdir()}


def test_texts_are_shown_not_interpreted(folder):
    page = Reader((folder / "index.html").read_text())
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    assert scripts == [{"src": "report.js", "defer": None}, {"src": "calibrate.js", "defer": None}]
    assert not any(name.startswith("on") or name == "style" for _, attributes in page.tags for name in attributes)
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert page.text.count(HOSTILE) > 10
    assert f"Pairs by {Q}" in page.text


def test_thumbnails_are_small_jpegs(folder):
    for path in (folder / "images").iterdir():
        with Image.open(path) as shown:
            assert shown.format == "JPEG"
            assert max(shown.size) <= 288


@pytest.mark.slow
def test_what_is_known_of_a_pair_is_under_it(browser, folder, images):
    with open_page(browser, folder / "index.html") as (page, _):
        ab, bc, de = (page.locator(f'.case[data-pair="{pair_key(images, one)}"]').first for one in ("AB", "BC", "DE"))
        assert texts(ab, ".likeness > div")[:2] == [f"{P}0.938", f"{Q}0.625"]
        assert texts(ab, ".paired") == ["pair"]
        assert texts(bc, ".paired") == []
        assert texts(bc, ".likeness > div") == [f"{P}0.500", f"{Q}0.562"]
        assert texts(de, ".likeness > div")[0] == f"{P}0.438"
        # D and A: 0.625 by p; A is not among D's three nearest by q, of which the last is 0.1875.
        ad = page.locator(f'.case[data-pair="{pair_key(images, "AD")}"]').first
        assert texts(ad, ".likeness > div") in ([f"{P}0.625", f"{Q}below 0.188"], [f"{P}0.625", f"{Q}below 0.375"])
        assert "Anchor" in ab.locator("img.own").first.get_attribute("alt")


@pytest.mark.slow
def test_bins_and_yields_are_those_counted_by_hand(browser, folder, images):
    with open_page(browser, folder / "index.html") as (page, watched):
        shown = {
            name: [(low, high, side, *pairs) for low, high, side, _, pairs in bins_of(page, name) if side != "below"]
            for name in EMBEDDERS
        }
        ab, ac, ad, bc = (pair_key(images, one) for one in ("AB", "AC", "AD", "BC"))
        assert shown[P] == [
            ("0.90", "1.00", "above", ab), ("0.64", "0.90", "in", ac), ("0.52", "0.64", "in", ad),
            ("0.50", "0.52", "in", bc),
        ]  # fmt: skip
        assert shown[Q] == [("0.64", "0.90", "in", ac), ("0.58", "0.64", "in", ab), ("0.50", "0.58", "in", bc)]
        assert texts(page, ".yield td.now") == ["34", "46", "36"], "three images and four candidates, then p, then q"
        assert texts(page, ".totals dd")[:3] == ["5", "1", "0.50to0.90"]
        text = " ".join(page.locator("#yield .note").text_content().split())
        assert "2 images" in text
        assert f"1 list of 3 neighbours by {P} " in text
        assert watched.complaints == []


def test_judging_changes_the_shares_the_advice_and_stays(browser, folder, images):
    ab, ac, ad, bc = (pair_key(images, one) for one in ("AB", "AC", "AD", "BC"))
    with open_page(browser, folder / "index.html") as (page, watched):
        row = bins_of(page, P)[0][3]
        assert tally_of(page, row) == ["0.90 to 1.00", "2", "0 / 1", "–", "–"]
        assert page.locator("#command").is_hidden()
        for key, verdict in ((ab, "near-identical"), (ac, "fits"), (ad, "fits"), (bc, "unrelated")):
            judge(page, key, verdict)
        # Wilson, z = 1.6449: of 1 of 1, 1 / (1 + z^2) = 0.27 is the lower end.
        assert tally_of(page, row) == ["0.90 to 1.00", "2", "1 / 1", "100 %27 to 100 %", "0 %0 to 73 %"]
        assert texts(page, f"#{row} .shares") == ["100 % near-identical (27 to 100 %) · 0 % unrelated (0 to 73 %)"]
        assert page.locator(f'.case[data-pair="{ab}"][data-judged="near-identical"]').count() == 2, "in both sheets"
        assert page.locator("#done").text_content() == "4"
        assert texts(page, ".advice dd") == ["min 0.52, max 0.90 (from 4 bins)", "min 0.58, max 0.58 (from 3 bins)"]
        assert page.locator("#command").is_hidden()
        assert "No band fits all" in page.locator("#advice").text_content()

        page.fill("#limit-near", "100")
        assert page.locator("#command").text_content() == (
            "pairwright refilter 'five <b>' --set mining.min_similarity=0.58 --set mining.max_similarity=0.90"
        )
        page.fill("#limit-unrelated", "100")
        assert "mining.min_similarity=0.50 " in page.locator("#command").text_content()

        page.reload()
        assert page.locator("#done").text_content() == "4"
        assert (
            page.locator(f'.case[data-pair="{bc}"] [data-verdict="unrelated"]').first.get_attribute("aria-pressed")
            == "true"
        )
        judge(page, bc, "unrelated")
        assert page.locator("#done").text_content() == "3", "pressed again, it is taken back"

        page.once("dialog", lambda dialog: dialog.accept())
        page.click("#clear")
        assert page.locator("#done").text_content() == "0"
        page.reload()
        assert page.locator("[data-judged]").count() == 0
        assert watched.complaints == []
        assert watched.from_elsewhere == []


@pytest.mark.slow
def test_shares_of_several_judgements(browser, tmp_path, images):
    folder = write(tmp_path, per_bin=12)
    with open_page(browser, folder / "index.html") as (page, _):
        # All of the band is one bin of p: A-C, A-D and B-C.
        row = next(bin_id for _, _, side, bin_id, _ in bins_of(page, P) if side == "in")
        judge(page, pair_key(images, "AC"), "fits")
        judge(page, pair_key(images, "BC"), "unrelated")
        # Of 1 of 2: 0.5 -+ z / (1 + z^2 / 2) * sqrt(1 / 8 + z^2 / 16) = 0.5 -+ 0.379.
        assert tally_of(page, row)[2:] == ["2 / 3", "0 %0 to 57 %", "50 %12 to 88 %"]
        assert texts(page, ".advice dd")[0] == "nothing judged yet", "two of three do not make a bin count"
        judge(page, pair_key(images, "AD"), "fits")
        # Of 1 of 3: (1/3 + z^2/6 -+ z sqrt(2/27 + z^2/36)) / (1 + z^2/3) = 0.412 -+ 0.335 ... 8 to 75 %.
        assert tally_of(page, row)[2:] == ["3 / 3", "0 %0 to 47 %", "33 %8 to 75 %"]
        assert "too many unrelated" in texts(page, ".advice dd")[0]


@pytest.mark.slow
def test_the_keyboard_judges_and_moves(browser, folder):
    with open_page(browser, folder / "index.html", viewport={"width": 1280, "height": 900}) as (page, watched):
        cases = page.locator(".case")
        cases.first.locator(".likeness").click()
        for key in ("1", "2", "3"):
            page.keyboard.press(key)
        assert cases.nth(0).get_attribute("data-judged") == "near-identical"
        assert cases.nth(1).get_attribute("data-judged") == "fits"
        assert cases.nth(2).get_attribute("data-judged") == "unrelated"
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("0")
        assert cases.nth(2).get_attribute("data-judged") is None
        page.keyboard.press("ArrowUp")
        assert "current" in cases.nth(1).get_attribute("class")
        page.keyboard.press("ArrowDown")
        assert "current" in cases.nth(2).get_attribute("class")
        page.click("#next")
        assert page.locator(".case.current").get_attribute("data-judged") is None
        page.fill("#limit-near", "12")
        page.locator("#limit-near").press("1")
        assert page.locator(".case.current").get_attribute("data-judged") is None, "digits in a field judge nothing"
        assert watched.complaints == []


@pytest.mark.slow
def test_judgements_are_downloaded(browser, folder, images):
    with open_page(browser, folder / "index.html") as (page, watched):
        judge(page, pair_key(images, "AB"), "near-identical")
        judge(page, pair_key(images, "AC"), "fits")
        with page.expect_download() as waiting:
            page.click("#download")
        content = json.loads(Path(waiting.value.path()).read_text())
        assert re.fullmatch(r"judgements-[\w.-]+\.json", waiting.value.suggested_filename)
        assert content["dataset"] == f"five {HOSTILE}"
        verdicts = {one["pair"]: one for one in content["judgements"]}
        assert verdicts[pair_key(images, "AC")]["verdict"] == "fits"
        assert verdicts[pair_key(images, "AB")]["similarities"] == {P: "0.938", Q: "0.625"}
        assert sorted(verdicts[pair_key(images, "AB")]["images"]) == [f"A {HOSTILE}", f"B {HOSTILE}"]
        first = content["bins"][0]
        assert (first["encoder"], first["low"], first["high"], first["judged"]) == (P, 0.9, 1, 1)
        assert first["near-identical"] == 1
        assert [url for url in watched.from_elsewhere if not url.startswith("blob:")] == []


def test_damaged_judgements_are_forgotten(browser, folder):
    with open_page(browser, folder / "index.html") as (page, watched):
        key = page.evaluate("`pairwright-calibrate:${document.querySelector('#judged').dataset.ident}`")
        for text in ("{half", '{"x": "<b>"}', "[1]", '"text"', "null"):
            page.evaluate("([key, text]) => localStorage.setItem(key, text)", [key, text])
            page.reload()
            assert page.locator("[data-judged]").count() == 0
            assert page.locator("#unkept").is_hidden()
        assert watched.complaints == []


@pytest.mark.slow
def test_pictures_load_from_beside_the_page_in_any_light_and_on_a_phone(browser, folder):
    contrast = (Path(__file__).parent / "contrast.js").read_text()
    for options in ({"color_scheme": "light"}, {"color_scheme": "dark"}, PHONE):
        with open_page(browser, folder / "index.html", **options) as (page, watched):
            assert broken_images(page) == []
            assert not overflows(page)
            page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
            for verdict in ("near-identical", "fits", "unrelated"):
                page.locator(".case:not([data-judged])").first.locator(f'[data-verdict="{verdict}"]').click()
            assert page.evaluate(contrast) == []
            assert watched.complaints == []
            assert watched.from_elsewhere == []


def test_one_embedder_has_one_table_and_one_sheet(tmp_path):
    images = make_five()
    found = {letter: (f"{next(o for o in 'ABCDE' if o != letter)} .75",) for letter in "ABCDE"}
    folder = write(tmp_path, make_neighbours(images, found), neighbours=1)
    page = Reader((folder / "index.html").read_text())
    assert sum(attributes.get("class") == "yield" for _, attributes in page.tags) == 1
    assert "all encoders" not in page.text


def test_what_the_numbers_leave_out_is_said(tmp_path):
    mining = MINING.model_copy(update={"min_hash_distance": 4, "check_worst": "after"})
    text = " ".join(Reader((write(tmp_path, mining=mining) / "index.html").read_text()).text.split())
    assert "(mining.min_hash_distance=4)" in text
    assert "mining.min_worst_similarity" in text


def test_no_neighbours_are_a_clear_error(tmp_path):
    with pytest.raises(ConfigError, match="neighbour"):
        write(tmp_path, make_neighbours(make_five(), dict.fromkeys("ABCDE", ("", ""))))


def test_the_same_dataset_gives_the_same_page(tmp_path, folder):
    again = write(tmp_path)
    assert {path.name: path.read_bytes() for path in again.rglob("*.*")} == {
        path.name: path.read_bytes() for path in folder.rglob("*.*")
    }
