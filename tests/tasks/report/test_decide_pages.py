"""Decide about pairs as a reader does: by keys, on a phone, with decisions that were made
before."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pairwright.schemas.decisions import Decision, Decisions, parse_decision
from tests.tasks.report.browser import broken_images, open_page
from tests.tasks.report.handmade import HOSTILE
from tests.tasks.report.pages import PHONE, report

DESK = {"viewport": {"width": 1280, "height": 900}}
CARD = ".pair[data-key]"


@pytest.fixture(scope="module")
def whole(tmp_path_factory, made):
    return report(tmp_path_factory.mktemp("decide"), made, pairs=12)


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)


def key_of(page, number):
    return page.locator(f"#pair-{number}").get_attribute("data-key")


def download(page):
    with page.expect_download() as found:
        page.locator("#download").click()
    assert found.value.suggested_filename == "decisions.jsonl"
    return Path(found.value.path()).read_text()


def test_pairs_are_decided_by_keys_kept_and_downloaded(browser, whole, made):
    with open_page(browser, whole / "pairs-1.html", **DESK) as (page, watched):
        texts = [
            page.locator(f"#pair-4 .words > .{kind} > p").first.inner_text()
            for kind in ("chosen", "rejected")
        ]
        press(page, "j", "a")
        assert page.evaluate("document.activeElement.id") == "pair-2", "who accepted goes on"
        press(page, "r", "j")
        assert page.evaluate("document.activeElement.id") == "pair-4"
        assert page.locator("#said").text_content() == "Pair 2 rejected."
        press(page, "e")
        areas = page.locator("#pair-4 textarea")
        assert [areas.nth(n).input_value() for n in (0, 1)] == texts
        areas.nth(0).fill(f"Another text. {HOSTILE}")
        press(page, "a")  # a letter in a text is a letter
        areas.nth(0).fill(f"Another text. {HOSTILE}")
        press(page, "Control+Enter", "k", "a", "u", "u")  # what was undone last is the edit
        assert page.locator("#said").text_content().startswith("Pair 4 ")
        press(page, "e")
        page.locator("#pair-4 textarea").nth(1).fill("One\n\ntwo.")
        page.locator("#pair-4 [name=note]").fill("why")
        press(page, "Control+Enter", "e", "Escape")
        assert page.locator("#tally").text_content() == "3 decisions, 1 taken back"
        before = download(page)
        page.reload()
        assert download(page) == before
        found = [parse_decision(line) for line in before.splitlines()]
        assert [(one.key, one.verdict, one.chosen, one.rejected, one.note) for one in found] == [
            (key_of(page, 1), "accept", "", "", ""),
            (key_of(page, 2), "reject", "", "", ""),
            (key_of(page, 3), "none", "", "", ""),
            (key_of(page, 4), "edit", "", "One\n\ntwo.", "why"),
        ]
        assert {key_of(page, number) for number in (1, 2, 4)} <= {
            row.key for row in made.of("preferences")
        }
        assert page.locator("#pair-4 .edited-text.rejected").inner_text().startswith("One")
        assert page.locator(f"{CARD} .verdict:visible").all_inner_texts() == [
            "accepted",
            "rejected",
            "edited",
        ]
        assert (
            "pairwright decide 'hand <b>made</b>' decisions.jsonl"
            in page.locator(".bar").inner_text()
        )
        assert watched.complaints == []


@pytest.mark.slow
def test_texts_that_are_none_or_the_same_are_not_kept(browser, whole):
    with open_page(browser, whole / "pairs-1.html", **DESK) as (page, _):
        press(page, "j", "e")
        for texts, word in ((("", "b"), "empty"), (("b", "b "), "same")):
            for place, text in enumerate(texts):
                page.locator("textarea").nth(place).fill(text)
            press(page, "Control+Enter")
            assert word in page.get_by_role("alert").text_content()
        press(page, "Escape")
        assert page.locator("#tally").text_content() == "No decisions yet"
        assert page.evaluate("document.activeElement.id") == "pair-1"


@pytest.mark.slow
def test_views_are_laid_over_the_images_by_keys(browser, whole):
    with open_page(browser, whole / "pairs-1.html", **DESK) as (page, watched):
        pair = page.locator(CARD, has=page.locator("[data-heat]")).first
        pair.evaluate("(pair) => pair.focus()")
        assert pair.locator(".heat-words").is_hidden()
        for key, name, laid in (
            ("h", "heat", ".heat"),
            ("c", "changed", ".mask.laid"),
            ("b", "boxes", ".boxes svg"),
        ):
            button = pair.locator(f"[data-view={name}]")
            press(page, key)
            assert button.get_attribute("aria-pressed") == "true"
            assert pair.locator(f".look .frame {laid}:visible").count() == 2
            press(page, key)
            assert button.get_attribute("aria-pressed") == "false"
            assert pair.locator(f".look .frame {laid}:visible").count() == 0
        press(page, "h", "f")
        assert "differs visibly" in pair.locator(".heat-words").inner_text()
        assert pair.locator(".look .frame[aria-pressed=true]").count() == 2
        assert broken_images(page) == []
        assert watched.complaints == []


@pytest.mark.slow
def test_keys_are_listed_and_go_on_to_the_next_page(browser, whole):
    with open_page(browser, whole / "pairs-1.html", **DESK) as (page, _):
        press(page, "?")
        assert page.get_by_role("dialog").get_by_text("flicker between the two images").is_visible()
        press(page, "a")
        page.locator("#use-keys").uncheck()
        press(page, "Escape", "a")
        assert page.locator("#tally").text_content() == "No decisions yet"
        page.reload()
        press(page, "a")
        assert page.locator("#tally").text_content() == "No decisions yet"
        page.locator("#show-keys").click()
        page.locator("#use-keys").check()
        press(page, "Escape")
        page.locator("#pair-10").evaluate("(pair) => pair.focus()")
        press(page, "ArrowRight")
        page.wait_for_url("**/pairs-2.html#first")
        page.wait_for_function("document.activeElement.id === 'pair-11'")
        press(page, "k")
        page.wait_for_url("**/pairs-1.html#last")
        page.wait_for_function("document.activeElement.id === 'pair-10'")


COVERED = """() => {
    const bar = document.querySelector(".bar").getBoundingClientRect();
    const texts = [...document.querySelectorAll("main p, main h2, main dt, main button, footer p")];
    const others = texts.filter((one) => !one.closest(".bar, dialog") && one.checkVisibility());
    const boxes = others.map((one) => one.getBoundingClientRect());
    return boxes.filter((box) => box.bottom > bar.top + 1 && box.top < bar.bottom && box.height).length;
}"""


@pytest.mark.parametrize("options", [DESK, PHONE])
def test_both_images_are_visible_and_the_bar_covers_no_text(browser, whole, options):
    with open_page(browser, whole / "pairs-1.html", **options) as (page, _):
        page.locator("#pair-1").evaluate("(pair) => pair.scrollIntoView()")
        frames = [page.locator("#pair-1 .look .frame").nth(n).bounding_box() for n in (0, 1)]
        assert all(
            box["y"] >= 0 and box["y"] + box["height"] <= options["viewport"]["height"]
            for box in frames
        )
        assert frames[0]["y"] == frames[1]["y"], "beside each other"
        page.locator(f"{CARD} [data-do=accept]").first.focus()
        bar = page.locator(".bar").bounding_box()
        assert (bar["x"], round(bar["width"])) == (0, options["viewport"]["width"])
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        assert page.evaluate(COVERED) == 0


@pytest.mark.slow
def test_decisions_of_the_dataset_are_shown(browser, tmp_path, made):
    first, second = made.of("preferences")[:2]
    at = datetime(2026, 11, 21, tzinfo=UTC)
    decided = [
        Decision(key=first.key, verdict="edit", chosen=f"By a person. {HOSTILE}", at=at),
        Decision(key=second.subject, verdict="reject", note="its pair", at=at),
    ]
    folder = report(tmp_path, made, decisions=Decisions({one.key: one for one in decided}))
    pages = {
        key: path
        for path in folder.glob("pairs-*.html")
        for key in (first.key, second.key)
        if key in path.read_text()
    }
    with open_page(browser, pages[first.key]) as (page, watched):
        card = page.locator(f'[data-key="{first.key}"]')
        assert card.locator(".edited-text.chosen").text_content() == decided[0].chosen
        assert page.locator("#tally").text_content() == "No decisions yet"
        card.locator("[data-do=none]").click()
        assert [json.loads(line)["verdict"] for line in download(page).splitlines()] == ["none"]
        assert watched.complaints == []
    with open_page(browser, pages[second.key]) as (page, _):
        # What this browser kept and the dataset knows better is no longer offered.
        before = {
            second.key: {"key": second.key, "verdict": "accept", "at": "2026-11-20T23:00:00.000Z"}
        }
        page.evaluate("(before) => localStorage.setItem(store, JSON.stringify(before))", before)
        page.reload()
        assert page.locator("#tally").text_content() == "No decisions yet"
        assert page.locator(f'[data-key="{second.key}"] .verdict').text_content() == "rejected"
