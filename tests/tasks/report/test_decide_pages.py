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


@pytest.fixture
def desk(browser, whole):
    """Give the first page of pairs on a desk; it must not complain."""
    with open_page(browser, whole / "pairs-1.html", **DESK) as (page, watched):
        yield page
        assert watched.complaints == []


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)


def key_of(page, number):
    return page.locator(f"#pair-{number}").get_attribute("data-key")


def focused(page):
    return page.evaluate("document.activeElement.id")


def text_of(page, selector):
    return page.locator(selector).text_content()


def download(page):
    with page.expect_download() as event:
        page.locator("#download").click()
    assert event.value.suggested_filename == "decisions.jsonl"
    return Path(event.value.path()).read_text()


def test_pairs_are_decided_by_keys_kept_and_downloaded(desk, made):
    press(desk, "j", "a")
    assert focused(desk) == "pair-2", "who accepted goes on"
    press(desk, "r", "j")
    assert focused(desk) == "pair-4"
    assert text_of(desk, "#said") == "Pair 2 rejected."
    texts = [desk.locator(f"#pair-4 .words > .{kind} > p").first for kind in ("chosen", "rejected")]
    shown = [text.inner_text() for text in texts]
    press(desk, "e")
    chosen, rejected = (desk.locator("#pair-4 textarea").nth(place) for place in (0, 1))
    assert [chosen.input_value(), rejected.input_value()] == shown
    chosen.fill(f"Another text. {HOSTILE}")
    press(desk, "a")  # a letter in a text is a letter
    chosen.fill(f"Another text. {HOSTILE}")
    press(desk, "Control+Enter", "k", "a", "u", "u")  # the edit is what was undone last
    assert text_of(desk, "#said").startswith("Pair 4 ")
    press(desk, "e")
    rejected.fill("One\n\ntwo.")
    desk.locator("#pair-4 [name=note]").fill("why")
    press(desk, "Control+Enter", "e", "Escape")
    assert text_of(desk, "#tally") == "3 decisions, 1 taken back"
    file = download(desk)
    desk.reload()
    assert download(desk) == file
    rows = [parse_decision(line) for line in file.splitlines()]
    assert [(row.key, row.verdict, row.chosen, row.rejected, row.note) for row in rows] == [
        (key_of(desk, 1), "accept", "", "", ""),
        (key_of(desk, 2), "reject", "", "", ""),
        (key_of(desk, 3), "none", "", "", ""),
        (key_of(desk, 4), "edit", "", "One\n\ntwo.", "why"),
    ]
    keys = {row.key for row in made.of("preferences")}
    assert {key_of(desk, number) for number in (1, 2, 4)} <= keys
    assert desk.locator("#pair-4 .edited-text.rejected").inner_text().startswith("One")
    verdicts = desk.locator(f"{CARD} .verdict:visible").all_inner_texts()
    assert verdicts == ["accepted", "rejected", "edited"]
    command = "pairwright decide 'hand <b>made</b>' decisions.jsonl"
    assert command in desk.locator(".bar").inner_text()


@pytest.mark.slow
def test_texts_that_are_empty_or_the_same_are_not_kept(desk):
    press(desk, "j", "e")
    for chosen, rejected, word in (("", "b", "empty"), ("b", "b ", "same")):
        desk.locator("textarea").nth(0).fill(chosen)
        desk.locator("textarea").nth(1).fill(rejected)
        press(desk, "Control+Enter")
        assert word in desk.get_by_role("alert").text_content()
    press(desk, "Escape")
    assert text_of(desk, "#tally") == "No decisions yet"
    assert focused(desk) == "pair-1"


@pytest.mark.slow
def test_views_are_laid_over_the_images_by_keys(desk):
    pair = desk.locator(CARD, has=desk.locator("[data-heat]")).first
    pair.evaluate("(pair) => pair.focus()")
    assert pair.locator(".heat-words").is_hidden()
    views = (("h", "heat", ".heat"), ("c", "changed", ".mask.laid"), ("b", "boxes", ".boxes svg"))
    for key, name, laid in views:
        button = pair.locator(f"[data-view={name}]")
        press(desk, key)
        assert button.get_attribute("aria-pressed") == "true"
        assert pair.locator(f".look .frame {laid}:visible").count() == 2
        press(desk, key)
        assert button.get_attribute("aria-pressed") == "false"
        assert pair.locator(f".look .frame {laid}:visible").count() == 0
    press(desk, "h", "f")
    assert "differs visibly" in pair.locator(".heat-words").inner_text()
    assert pair.locator(".look .frame[aria-pressed=true]").count() == 2
    assert broken_images(desk) == []


@pytest.mark.slow
def test_keys_are_listed_and_go_on_to_the_next_page(desk):
    press(desk, "?")
    assert desk.get_by_role("dialog").get_by_text("flicker between the two images").is_visible()
    press(desk, "a")
    desk.locator("#use-keys").uncheck()
    press(desk, "Escape", "a")
    assert text_of(desk, "#tally") == "No decisions yet"
    desk.reload()
    press(desk, "a")
    assert text_of(desk, "#tally") == "No decisions yet"
    desk.locator("#show-keys").click()
    desk.locator("#use-keys").check()
    press(desk, "Escape")
    desk.locator("#pair-10").evaluate("(pair) => pair.focus()")
    press(desk, "ArrowRight")
    desk.wait_for_url("**/pairs-2.html#first")
    desk.wait_for_function("document.activeElement.id === 'pair-11'")
    press(desk, "k")
    desk.wait_for_url("**/pairs-1.html#last")
    desk.wait_for_function("document.activeElement.id === 'pair-10'")


COVERED = """() => {
    const bar = document.querySelector(".bar").getBoundingClientRect();
    const texts = [...document.querySelectorAll("main p, main h2, main dt, main button, footer p")];
    const others = texts.filter((one) => !one.closest(".bar, dialog") && one.checkVisibility());
    const boxes = others.map((one) => one.getBoundingClientRect());
    return boxes.filter((box) => box.bottom > bar.top + 1 && box.top < bar.bottom && box.height).length;
}"""


@pytest.mark.parametrize("options", [DESK, PHONE], ids=["desk", "phone"])
def test_both_images_are_visible_and_the_bar_covers_no_text(browser, whole, options):
    width, height = options["viewport"].values()
    with open_page(browser, whole / "pairs-1.html", **options) as (page, _):
        page.locator("#pair-1").evaluate("(pair) => pair.scrollIntoView()")
        frames = [page.locator("#pair-1 .look .frame").nth(n).bounding_box() for n in (0, 1)]
        assert all(box["y"] >= 0 and box["y"] + box["height"] <= height for box in frames)
        assert frames[0]["y"] == frames[1]["y"], "beside each other"
        page.locator(f"{CARD} [data-do=accept]").first.focus()
        bar = page.locator(".bar").bounding_box()
        assert (bar["x"], round(bar["width"])) == (0, width)
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        assert page.evaluate(COVERED) == 0


@pytest.mark.slow
def test_decisions_of_the_dataset_are_shown(browser, tmp_path, made):
    first, second = made.of("preferences")[:2]
    at = datetime(2026, 11, 21, tzinfo=UTC)
    edit = Decision(key=first.key, verdict="edit", chosen=f"By a person. {HOSTILE}", at=at)
    reject = Decision(key=second.subject, verdict="reject", note="its pair", at=at)
    decisions = Decisions({row.key: row for row in (edit, reject)})
    folder = report(tmp_path, made, decisions=decisions)
    pages = [*folder.glob("pairs-*.html")]
    first_page, second_page = (
        next(path for path in pages if row.key in path.read_text()) for row in (first, second)
    )
    with open_page(browser, first_page) as (page, watched):
        card = page.locator(f'[data-key="{first.key}"]')
        assert card.locator(".edited-text.chosen").text_content() == edit.chosen
        assert text_of(page, "#tally") == "No decisions yet"
        card.locator("[data-do=none]").click()
        assert [json.loads(line)["verdict"] for line in download(page).splitlines()] == ["none"]
        assert watched.complaints == []
    with open_page(browser, second_page) as (page, _):
        # What this browser kept and the dataset knows better is no longer offered.
        older = {"key": second.key, "verdict": "accept", "at": "2026-11-20T23:00:00.000Z"}
        store = "(before) => localStorage.setItem(store, JSON.stringify(before))"
        page.evaluate(store, {second.key: older})
        page.reload()
        assert text_of(page, "#tally") == "No decisions yet"
        assert text_of(page, f'[data-key="{second.key}"] .verdict') == "rejected"
