"""The server of a dataset's pages, as a process of its own: who is let in, what is found, what is
decided."""

import http.client
import json
import re
import signal
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path

import httpx
import pytest

import pairwright as pw
from pairwright.flows.versions.export_dataset import ExportConfig
from pairwright.tasks.export.tally_rows import Selection
from pairwright.tasks.store.decision_table import read_decisions
from pairwright.tasks.store.files import Folder
from tests.fixtures.command import run
from tests.tasks.report.pages import Reader

VIEW = [sys.executable, "-m", "pairwright", "view"]
LIGHT = ("images", "rejected_images")


class Served:
    """A running server and a client with its token."""

    def __init__(self, folder: Path | str):
        self.folder = folder
        self.process = subprocess.Popen(
            [*VIEW, str(folder), "--port", "0", "--no-browser", "--annotator", "anna <b>"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        lines = iter(self.process.stdout.readline, "")
        self.url = next((line.strip() for line in lines if "http" in line), "")
        assert self.url, self.process.communicate()[1]
        self.home, _, self.token = self.url.partition("/?token=")
        self.port = urllib.parse.urlsplit(self.home).port
        self.client = httpx.Client(base_url=self.home, timeout=60, trust_env=False)
        assert self.client.get(self.url).status_code == 303
        while "refresh" in self.client.get("/").headers:  # the search table is being made
            time.sleep(0.1)

    @property
    def cookie(self) -> str:
        return "; ".join(f"{name}={value}" for name, value in self.client.cookies.items())

    def page(self, **query) -> "Page":
        answer = self.client.get("/", params=query)
        return Page(answer.status_code, answer.text)

    def post(self, decisions, **headers):
        own = {
            "Origin": self.home,
            "X-Pairwright-Token": self.page(size=1).token,
            "Content-Type": "application/json",
        }
        body = decisions if isinstance(decisions, bytes) else json.dumps(decisions).encode()
        told = {name: value for name, value in {**own, **headers}.items() if value}
        return self.client.post("/decisions", content=body, headers=told)

    def stop(self) -> tuple[int, str]:
        self.client.close()
        self.process.send_signal(signal.SIGINT)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


class Page:
    def __init__(self, status, text):
        self.status, self.text, self.read = status, text, Reader(text)
        cards = [given for tag, given in self.read.tags if tag == "article" and "data-key" in given]
        self.verdicts = {card["data-key"]: card.get("data-verdict", "") for card in cards}
        self.keys = [card["data-key"] for card in cards]
        links = [given for tag, given in self.read.tags if tag == "a" and "rel" in given]
        self.links = {
            link["rel"]: dict(urllib.parse.parse_qsl(link["href"].partition("?")[2]))
            for link in links
        }
        self.token = next(given["data-token"] for tag, given in self.read.tags if tag == "body")
        self.total = int(re.search(r"<small>([\d,]+)", text)[1].replace(",", ""))


@pytest.fixture(scope="module")
def served(dataset):
    server = Served(dataset)
    yield server
    code, said = server.stop()
    assert code == 130
    assert "Stopped" in said.splitlines()[-1]
    assert "Traceback" not in said


@pytest.fixture(scope="module")
def preferences(dataset):
    return {row.key: row for row in pw.open(dataset)["preferences"].rows(without=LIGHT)}


@pytest.fixture(scope="module")
def words_of(dataset, preferences):
    """Return all texts of each card, by the key that is decided about."""
    opened = pw.open(dataset)
    captions = {row.subject: row.text for row in opened["captions"].rows()}
    names = dict(opened["images"].to_pandas(["key", "name"]).itertuples(index=False))
    differences = {row.subject: row.text for row in opened["differences"].rows()}
    by_pair = {row.subject: row for row in preferences.values()}
    texts = {}
    for pair in opened["pairs"].rows():
        parts = [differences.get(pair.key, "")]
        for image in (pair.first, pair.second):
            parts += [captions.get(image, ""), names[image]]
        row = by_pair.get(pair.key)
        if row:
            parts += [row.chosen, row.rejected, *(negative.text for negative in row.negatives)]
        texts[row.key if row else pair.key] = "\n".join(parts).lower()
    return texts


def test_an_annotator_has_a_name_of_printable_characters(dataset, capsys) -> None:
    for name in ("a" * 101, "anna\n", "\x1b[31m"):
        assert run("view", dataset, "--no-browser", "--annotator", name) == 2
        assert "--annotator: " in capsys.readouterr().err


def test_only_who_has_the_token_is_let_in(served) -> None:
    with httpx.Client(base_url=served.home, trust_env=False) as stranger:
        for path in ("/", "/?token=", f"/?token={served.token[:-1]}x", "/report.css", "/x"):
            assert stranger.get(path).status_code == 401
        assert stranger.post("/decisions", json=[]).status_code == 401
        assert not stranger.cookies
        answer = stranger.get(f"/?token={served.token}&q=a+b")
        assert (answer.status_code, answer.headers["location"]) == (303, "/?q=a+b")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert served.token not in cookie
        answer = stranger.get("/?size=1")
        assert answer.status_code == 200
        assert served.token not in answer.text
        headers = {
            "x-content-type-options": "nosniff",
            "x-frame-options": "DENY",
            "referrer-policy": "no-referrer",
            "cross-origin-resource-policy": "same-origin",
            "cache-control": "no-store",
        }
        assert headers.items() <= dict(answer.headers).items()
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy


def test_only_this_machine_is_served_under_its_own_name(served) -> None:
    def status(host: str) -> int:
        headers = {"Host": host, "Cookie": served.cookie}
        return served.client.get("/report.css", headers=headers).status_code

    assert status(f"localhost:{served.port}") == 200
    for host in ("evil.example", f"evil.example:{served.port}", "127.0.0.1", "127.0.0.1:1", ""):
        assert status(host) in (400, 421)
    ports = Path(f"/proc/{served.process.pid}/net/tcp")
    if ports.exists():
        lines = [line.split() for line in ports.read_text().splitlines()]
        listens = [line[1] for line in lines if line[3] == "0A"]
        assert f"0100007F:{served.port:04X}" in listens
        assert f"00000000:{served.port:04X}" not in listens


def test_no_address_leads_to_a_file(served, dataset) -> None:
    """Ask as no well-behaved client does: addresses go out as they are written here."""
    up = "/".join([".."] * 12)
    for path in (
        f"/images/{up}/etc/passwd",
        "/images/..%2f..%2fbuild.json",
        "/images/%2e%2e/%2e%2e/build.json",
        "/../build.json",
        f"/images/{dataset}/build.json",
        "/images/x%00.png",
        f"/images/{'a' * 5000}.png",
        "/serve_pages.py",
        "//etc/passwd",
    ):
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
        connection.putrequest("GET", path, skip_host=True)
        connection.putheader("Host", f"127.0.0.1:{served.port}")
        connection.putheader("Cookie", served.cookie)
        connection.endheaders()
        status = connection.getresponse().status
        connection.close()
        assert status in (404, 400), path


def test_pages_show_each_card_once_in_every_order(served, words_of, dataset) -> None:
    similar = {row.key: row.similarity for row in pw.open(dataset)["pairs"].rows()}
    for order in ("key", "gap"):
        page, seen = served.page(order=order, size=4), []
        while True:
            seen += page.keys
            assert page.total == len(words_of)
            if "next" not in page.links:
                break
            page = served.page(**page.links["next"])
        assert sorted(seen) == sorted(words_of)
        back = served.page(**page.links["prev"])
        assert back.keys == seen[-len(page.keys) - 4 : -len(page.keys)]
    shown = [key for key, _ in sorted(similar.items(), key=lambda item: (-item[1], item[0]))]
    subjects = {row.key: row.subject for row in pw.open(dataset)["preferences"].rows(without=LIGHT)}
    first = served.page(order="-similarity", size=50).keys
    assert [subjects.get(key, key) for key in first] == shown[: len(first)]


@pytest.mark.parametrize(
    "query",
    [
        "the first",
        "BALL",
        '"the second image"',
        "photograph-1",
        "%",
        "'",
        '"',
        "_____",
        "\\",
        '<script>alert("x")</script>',
        "É",
        "$1 ?",
        "\x00",
    ],
)
def test_a_search_finds_what_holds_all_words(served, words_of, query) -> None:
    terms = [a or b for a, b in re.findall(r'"([^"]+)"|(\S+)', query.lower())]
    wanted = {key for key, text in words_of.items() if all(term in text for term in terms)}
    # As a form sends what was not filled in.
    page = served.page(q=query, size=50, least="", score_most="")
    assert (page.status, page.total) == (200, len(wanted))
    assert set(page.keys) <= wanted
    assert len(page.keys) == min(50, len(wanted))
    assert "<script>alert" not in page.text


@pytest.mark.parametrize(
    "query",
    [
        {"q": "x" * 10_000},
        {"size": "0"},
        {"size": "10000"},
        {"after": "../x"},
        {"order": "key; DROP TABLE cards"},
        {"least": "nan"},
        {"least": "1e99"},
        {"decision": "x"},
    ],
)
def test_a_search_that_cannot_be_says_so_and_shows_all(served, words_of, query) -> None:
    page = served.page(**query)
    assert (page.status, page.total) == (400, len(words_of))
    assert next(iter(query)) in page.text
    assert "Invalid search" in page.text


def test_filters_narrow(served, preferences, words_of) -> None:
    makers = [row.rejected_maker for row in preferences.values()]
    for maker in set(makers):
        assert served.page(kind=maker).total == makers.count(maker)
    for split in {row.split for row in preferences.values()}:
        assert split in served.page(split=split, size=5).text
    assert served.page(kind="none").total == len(words_of) - len(preferences)
    assert served.page(split="train", kind="none", licence="x").total == 0


def test_decisions_are_stored_and_exports_follow(served, preferences, dataset, tmp_path) -> None:
    def said(key, verdict, **texts):
        return {"key": key, "verdict": verdict, "at": "2026-11-21T11:00:00.000Z", **texts}

    rows = [row for row in preferences.values() if row.rejected and row.split == "train"]
    accepted, rejected, edited = (row.key for row in rows[:3])
    decisions = [said(accepted, "accept"), said(rejected, "reject")]
    decisions.append(said(edited, "edit", chosen="Nothing <b>differs</b>."))
    assert served.post(decisions, Origin="http://evil.example").status_code == 403
    assert served.post(decisions, Origin="").status_code == 403
    assert served.post(decisions, **{"X-Pairwright-Token": "x"}).status_code == 403
    for bad in (b"{", [*decisions, said(accepted, "maybe")], [said("f" * 32, "accept")]):
        answer = served.post(bad)
        assert answer.status_code == 400
        assert answer.json()["error"]
    assert served.page(decision="decided").total == 0
    assert served.post(decisions).json() == {"stored": 3, "refused": 0}
    page = served.page(decision="decided", size=50)
    assert page.verdicts == {accepted: "accept", rejected: "reject", edited: "edit"}
    assert served.page(decision="undecided").total == served.page().total - 3
    assert {one.by for one in read_decisions(Folder(str(dataset))).by_key.values()} == {"anna <b>"}
    config = ExportConfig(selection=Selection(accepted=True))
    out = tmp_path / "out"
    tally = pw.open(dataset).export("llamafactory", str(out), config=config)
    assert (tally.rows, tally.decided["accept"], tally.decided["edit"]) == (2, 1, 1)
    assert "Nothing <b>differs</b>." in (out / "data/train.jsonl").read_text()
