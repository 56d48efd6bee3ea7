"""All makers on photographs that served models described, up to the preferences; what each drops is counted."""

import re
from dataclasses import replace

import pyarrow as pa

from pairwright.schemas.checks import LOW_RATING
from pairwright.schemas.config import CounterfactualsConfig, PreferencesConfig, RejectedTextsConfig, SampledTextsConfig
from pairwright.schemas.rows import MAKERS, CheckRow, Dropped, PreferenceRow, RejectedTextRow, SplitRow, make_key
from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.preferences.build_preferences import build_preferences
from pairwright.tasks.rejected.edit_texts import NO_GRAPH, edit_texts
from pairwright.tasks.rejected.edit_with_model import edit_with_model
from pairwright.tasks.rejected.refute_texts import refute_texts
from pairwright.tasks.rejected.retrieve_texts import retrieve_texts
from pairwright.tasks.rejected.sample_texts import sample_texts
from pairwright.tasks.rejected.swap_texts import swap_texts
from tests.fixtures.chat_server import chat_server
from tests.fixtures.coloured import colour_of, image_of, pair_of
from tests.fixtures.descriptions import description
from tests.fixtures.rows import row_of

RED, BLUE, GREEN = (image_of(colour) for colour in ("red", "blue", "green"))
IMAGES = {image.key: image for image in (RED, BLUE, GREEN)}
PAIRS = {pair.key: pair for pair in (pair_of(RED, BLUE), pair_of(BLUE, GREEN), pair_of(GREEN, RED))}


def described(pair, *, doubtful=False):
    """Describe a pair as one does who looks, or who mistakes the second image."""
    first, second = (colour_of(IMAGES[key].image) for key in (pair.first, pair.second))
    row = description(f"shows a {first} wall", f"shows a {'brown' if doubtful else second} wall", subject=pair.key)
    return replace(row, key=make_key(row.text))


ROWS = [described(pair) for pair in PAIRS.values()]
DOUBTFUL = {key: described(pair, doubtful=True) for key, pair in PAIRS.items()}


def answer(asked):
    """Sample with a wrong colour, edit as asked, and confirm."""
    if "<image>" in asked.text:
        text = description(f"shows a {colour_of(asked.images[0])} wall", "shows a pink door").text
        return text if asked.seed % 2 else "I see two walls."
    if "Can both sentences be true?" in asked.text:
        return "contradict"
    before, second = re.search(r'"(.*)"', asked.text)[1].split(", while ")
    if "of the first image," in asked.text:
        before = before.replace("wall", "gate")
    else:
        second = second.replace("wall", "gate")
    return f"{before}, while {second}"


def check(row):
    about = {"description": row.key, "check": "judged", "score": 1.0, "why": LOW_RATING}
    return row_of(CheckRow, row.key, source=row.key, subject=row.subject, **about)


def made():
    """Run every maker; return what each gives."""
    config, tables = RejectedTextsConfig(), {"pairs": PAIRS, "images": IMAGES}
    splits = pa.table({"subject": list(PAIRS), "split": ["train"] * len(PAIRS), "component": list(PAIRS)})
    both = {key: (row, DOUBTFUL[key]) for key, row in zip(PAIRS, ROWS, strict=True)}
    with chat_server(answer) as server:
        chat = ChatConfig(endpoint=(server.url,), model="tiny", structured_output="vllm")
        sampled = SampledTextsConfig(enabled=True, samples=8, chat=chat)
        edited = CounterfactualsConfig(enabled=True, chat=chat)
        checks = {key: (check(row),) for key, row in DOUBTFUL.items()}
        return {
            "retrieved": list(retrieve_texts(ROWS, config, everything=ROWS, splits=splits, **tables)),
            "swapped": list(swap_texts(ROWS, config, **tables)),
            "edited": list(edit_texts(ROWS, config, **tables)),
            "sampled": list(sample_texts(ROWS, sampled, **tables)),
            "refuted": list(refute_texts(ROWS, config, **tables, described=both, judged=checks)),
            "counterfactual": list(edit_with_model(ROWS, edited, **tables)),
        }


def test_every_maker_gives_a_text_or_its_reason():
    found = made()
    assert tuple(found) == MAKERS
    for maker, rows in found.items():
        assert sorted(row.source_key for row in rows) == sorted(row.key for row in ROWS)
        if maker == "edited":
            assert {row.reason for row in rows if isinstance(row, Dropped)} == {NO_GRAPH}
        else:
            assert all(isinstance(row, RejectedTextRow) and row.maker == maker for row in rows)
            assert not {row.text for row in rows}.intersection(row.text for row in ROWS if maker != "retrieved")
    assert {row.note for row in found["refuted"]} == {"judge: low rating (1)"}
    assert all(row.note.endswith("unchecked") for maker in ("retrieved", "swapped") for row in found[maker])


def test_preferences_hold_all_of_them():
    tables = {
        maker: {row.subject: (row,) for row in rows if isinstance(row, RejectedTextRow)}
        for maker, rows in made().items()
    }
    splits = {key: row_of(SplitRow, source=key, split="train") for key in PAIRS}
    differences = {key: (row,) for key, row in zip(PAIRS, ROWS, strict=True)}
    config = PreferencesConfig(rejected="hardest")
    rows = list(
        build_preferences(list(PAIRS.values()), config, splits=splits, images=IMAGES, differences=differences, **tables)
    )
    for row, chosen in zip(rows, ROWS, strict=True):
        assert isinstance(row, PreferenceRow)
        makers = [row.rejected_maker, *(negative.maker for negative in row.negatives)]
        assert sorted(makers) == sorted(set(MAKERS) - {"edited"})
        texts = [row.rejected, *(negative.text for negative in row.negatives)]
        assert chosen.text not in texts
        assert len(set(texts)) == len(texts)
        scores = [negative.score for negative in row.negatives]
        assert scores == sorted(scores, reverse=True)
        assert tables[makers[0]][row.subject][0].score >= scores[0]
        assert row.images == tuple(IMAGES[key].image for key in row.image_keys)
