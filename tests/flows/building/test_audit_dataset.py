"""Audits, from an album and a server to the worth of its texts and a page."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import skimage.data
from PIL import Image

import pairwright as pw
from pairwright.flows.building.audit_dataset import Audited, prepare_audit
from pairwright.flows.building.make_request import request_of
from pairwright.flows.pipeline.pipeline import Pipeline
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.sources.planted import list_items
from pairwright.tasks.store.audits import mark_writer, read_audit
from tests.bench.audit_writers import ScriptedModels
from tests.fixtures.chat_server import ChatServer, chat_server
from tests.fixtures.command import run

SETTINGS = (
    *("captions.writer=served", "differences.writer=scene-graph,served"),
    *("controls.enabled=true", "confirming.enabled=true"),
    *("planted.max_side=320", "planted.samples_per_pixel=2", "run.workers=1"),
)
PAIRS = 4


@dataclass
class AuditedAlbum:
    """Album of two photographs, and its audit with a writer that mixes up the images."""

    album: pw.Dataset
    audited: Audited
    server: ChatServer


@pytest.fixture(scope="module")
def mixed_up(tmp_path_factory) -> Iterator[AuditedAlbum]:
    folder = tmp_path_factory.mktemp("audit")
    photographs = folder / "photographs"
    photographs.mkdir()
    for name in ("coffee", "astronaut"):
        Image.fromarray(getattr(skimage.data, name)()).save(photographs / f"{name}.png")
    models = ScriptedModels(folder / "album" / "audit")
    with chat_server(models.answer, models=("mixes up first and second",)) as server:
        settings = [*SETTINGS, f"models.chat.endpoint={server.url}"]
        out = folder / "album"
        album = pw.build(str(photographs), out=str(out), settings=settings, until="sources")
        yield AuditedAlbum(album, album.audit(pairs=PAIRS), server)


def test_false_texts_are_found_and_refused(mixed_up) -> None:
    worth = mixed_up.audited.worth
    assert worth.pairs == PAIRS
    assert worth.written.hits == 0
    assert worth.written.of + worth.undescribed == PAIRS
    assert worth.written.of
    confirmed = next(check for check in worth.checks if check.name == "confirmed")
    swapped = next(check for check in worth.checks if check.name == "swapped")
    assert confirmed.false_kept.hits == 0
    assert swapped.false_kept.hits == swapped.false_kept.of, "what a swapped pair cannot see"
    assert worth.chosen.of == 0


def count_questions(server: ChatServer) -> int:
    """Return how often the models were asked about images, but by the probe before a build."""
    return sum("What do you see" not in request.text for request in server.asked if request.images)


def test_it_is_repeated_at_no_cost(mixed_up) -> None:
    before = count_questions(mixed_up.server)
    again = mixed_up.album.audit(pairs=PAIRS)
    assert again.worth == mixed_up.audited.worth
    assert count_questions(mixed_up.server) == before


def test_its_mark_is_that_of_the_album(mixed_up) -> None:
    album = mixed_up.album
    built = request_of(Pipeline(album.profile, "differences"), album.folder).version
    stored = read_audit(album.folder)
    assert stored is not None
    assert stored.mark == mark_writer(built.planned)


def test_its_page_and_its_result_are_below_the_dataset(mixed_up) -> None:
    folder = Path(mixed_up.album.folder.path("audit"))
    page = (folder / "index.html").read_text()
    assert "4 pairs" in page
    assert "says something wrong about a planted thing" in page
    stored = read_audit(mixed_up.album.folder)
    assert stored is not None
    assert stored.worth == json.loads(json.dumps(mixed_up.audited.worth.as_json()))


def test_a_plan_plants_nothing(mixed_up) -> None:
    plan = mixed_up.album.plan_audit(pairs=PAIRS)
    assert plan.new_items == 0, "what was audited is done"
    assert {"described", "controlled", "confirmed"} <= {*plan.stages}


def listed_items(album: pw.Dataset, pairs: int) -> list[str]:
    planned = prepare_audit(album.version, pairs).pairs
    source = planned.profile.source_config
    return [item.key for item in list_items(source, planned.limit)]


def test_fewer_pairs_are_the_first_of_more(mixed_up) -> None:
    both = listed_items(mixed_up.album, PAIRS)
    assert len(both) == 2
    assert listed_items(mixed_up.album, 2) == both[:1]
    assert listed_items(mixed_up.album, PAIRS) == both, "none was copied again under another key"


def test_a_photograph_is_copied_again_as_the_same_item(mixed_up) -> None:
    folder = Path(mixed_up.album.folder.path("audit/photographs"))
    items = listed_items(mixed_up.album, PAIRS)
    first, _ = sorted(folder.iterdir())
    first.rename(folder / f"{first.stem}.torn.png")  # a file of no photograph of the dataset
    assert listed_items(mixed_up.album, PAIRS) == items
    assert len(list(folder.iterdir())) == 2


def test_texts_of_scene_graphs_need_no_audit(tmp_path) -> None:
    quick = ("scenes.samples_per_pixel=2", "scenes.width=96", "scenes.height=72")
    album = pw.build(out=str(tmp_path / "scenes"), settings=quick, limit=1, until="sources")
    with pytest.raises(ConfigError, match="nothing to audit"):
        album.audit(pairs=2)


def test_an_album_that_no_model_describes_is_not_audited(mixed_up, tmp_path) -> None:
    photographs = Path(mixed_up.album.folder.path("")).parent / "photographs"
    album = pw.build(str(photographs), out=str(tmp_path / "album"), until="sources")
    with pytest.raises(ConfigError, match="no served model"):
        album.audit(pairs=2)


def test_the_verb_prints_shares_and_the_page(mixed_up, capsys) -> None:
    assert run("audit", mixed_up.album.url, "--pairs", PAIRS) == 0
    printed = capsys.readouterr().out
    assert "Chosen texts that are true" in printed
    assert "index.html" in printed
    assert run("audit", mixed_up.album.url, "--pairs", PAIRS, "--plan", "--json") == 0
    assert json.loads(capsys.readouterr().out)["items"] == 2
