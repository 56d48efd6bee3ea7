"""The dataset made by hand as served models would write it: who was asked, what checks found, what
came of the rest.

Two candidates were described of each pair: the first fails a check (each pair another one), the
second is taken. All that a model or a source could say is hostile (markup, quotes, a character that
turns the reading order round).
"""

from dataclasses import replace

from pairwright.schemas import rows
from pairwright.schemas.checks import (
    LOW_RATING,
    NOT_TURNED_ROUND,
    NOTHING_AFFIRMED,
    SECOND_UNGROUNDED,
)
from tests.fixtures.rows import row_of
from tests.tasks.report.handmade import HOSTILE, LINE, Handmade, make_whole

CHAT, LANGUAGE, JUDGE = (
    "Qwen/Qwen2-VL-7B-Instruct",
    "mistralai/Mixtral-8x7B-Instruct-v0.1",
    "judge <b>model</b>",
)
TURNED = "\u202egnorw daer\u202c"
NASTY = f"{HOSTILE} {TURNED}"
LINE_SERVED = (
    *LINE[:4],
    ("controlled", "described", rows.DifferenceRow, rows.CheckRow, "captioning"),
    ("grounded", "described", rows.DifferenceRow, rows.CheckRow, "captioning"),
    ("judged", "described", rows.DifferenceRow, rows.CheckRow, "captioning"),
    *LINE[4:6],
    ("questions", "pairs", rows.PairRow, rows.QuestionRow, "captioning"),
    *LINE[6:9],
    ("sampled", "pairs", rows.PairRow, rows.RejectedTextRow, "rejected"),
    ("counterfactual", "pairs", rows.PairRow, rows.RejectedTextRow, "rejected"),
    *LINE[9:],
)


def asked(
    prompt, number, *, model=CHAT, tokens=(1300, 60), latency=1.0, finish="stop"
) -> rows.Served:
    """Return one request; ``number`` makes its seed and tells it from others."""
    return rows.Served(
        prompt=prompt,
        model=model,
        revision="rev-1" if model == CHAT else "",
        seed=number,
        prompt_tokens=tokens[0],
        completion_tokens=tokens[1],
        latency=latency,
        finish_reason=finish,
    )


def sentence(first, second):
    return (
        f"The difference between the two images is that the first image {first}, while the "
        f"second image {second}."
    )


def make_served(groups: int = 6, photographs: int = 4) -> Handmade:
    """Return every table; the first pair was dropped by the writer, the second has no candidate
    that passed."""
    made = make_whole(groups, photographs)
    pairs = [
        replace(
            row,
            human_differences=(f"somebody moved the ball {NASTY}",) if n % 3 == 1 else (),
            instruction=f"paint the ball {NASTY}" if n % 3 == 2 else "",
        )
        for n, row in enumerate(made.of("pairs"))
    ]
    made.tables["pairs"] = [*pairs]
    made.tables["captions"] = [_caption(row, n) for n, row in enumerate(made.of("captions"))]
    for name in (
        "described",
        "controlled",
        "grounded",
        "judged",
        "questions",
        "sampled",
        "counterfactual",
    ):
        made.tables[name] = []
    made.tables["differences"] = []
    comparisons = {row.subject: row for row in made.of("comparisons")}
    made.tables["comparisons"] = [_comparison(row, n) for n, row in enumerate(comparisons.values())]
    for n, pair in enumerate(pairs):
        _describe(made, pair, n)
    _prefer(made)
    return made


def _caption(row: rows.CaptionRow, n: int) -> rows.CaptionRow:
    requests = (asked("describe_image", 10_000 + n, latency=2.0 + n / 100, tokens=(1350, 90)),)
    split = asked("split_sentences", 20_000 + n, latency=0.5, tokens=(120, 80))
    sentences = ("There is a table.", f"On it lie three balls {NASTY}.")
    return replace(
        row, model=CHAT, sentences=sentences, text=" ".join(sentences), served=(*requests, split)
    )


def _describe(made: Handmade, pair: rows.PairRow, n: int) -> None:
    """Add the candidates of a pair with their checks; the pair's preference and comparison are
    there already."""
    if n == 0:
        made.tables["described"].append(
            rows.Dropped(source_key=pair.key, reason="off the template", detail="There are")
        )
        made.tables["differences"].append(
            rows.Dropped(source_key=pair.key, reason="no description")
        )
        return
    bad = _described(pair, sentence(f"shows a cube {n}", f"features a lamp {NASTY}"), n, place=1)
    good = _described(
        pair,
        sentence("displays a red ball", f"contains a {'green' if n % 4 else 'blue'} ball {NASTY}"),
        n,
        place=2,
    )
    kept = [bad] if n == 1 else [bad, good]
    made.tables["described"] += kept
    for row in kept:
        _check(made, row, n, passes=row is good)
    if n > 1:
        made.tables["differences"].append(replace(good, source_key=pair.key))
        made.tables["questions"].append(_question(pair, n))
        for maker, text, model in (
            ("sampled", sentence("displays a red lamp", f"contains a green ball {n}"), CHAT),
            ("counterfactual", good.text.replace("red", "yellow"), LANGUAGE),
        ):
            request = asked(
                maker, 50_000 + n + (maker == "sampled") * 1000, model=model, latency=0.7
            )
            made.tables[maker].append(_rejected(pair, text, maker, n, served=(request,)))
    else:
        made.tables["differences"].append(
            rows.Dropped(source_key=pair.key, reason="no description passed its checks")
        )
        made.tables["questions"].append(
            rows.Failed(source_key=pair.key, reason="no answer in time")
        )


def _described(pair: rows.PairRow, text: str, n: int, *, place: int) -> rows.DifferenceRow:
    prompt = ("difference_from_captions", "difference_from_human", "difference_from_edit")[n % 3]
    attempts = 2 if n % 5 == 0 and place == 2 else 1
    seeds = range(30_000 + 10 * n + 3 * place, 30_000 + 10 * n + 3 * place + attempts)
    return row_of(
        rows.DifferenceRow,
        "described",
        pair.key,
        place,
        source=pair.key,
        text=text,
        first_half=text[:40],
        second_half=text[40:],
        verbs=("shows", "features") if place == 1 else ("displays", "contains"),
        attempts=attempts,
        model=CHAT,
        claims="[]",
        known=("captions", "human difference", "edit")[n % 3],
        served=tuple(
            asked(prompt, seed, latency=1.0 + n / 50, tokens=(2700, 45)) for seed in seeds
        ),
    )


def _check(made: Handmade, row: rows.DifferenceRow, n: int, *, passes: bool) -> None:
    fails = (
        "" if passes else (NOT_TURNED_ROUND, SECOND_UNGROUNDED, LOW_RATING, NOTHING_AFFIRMED)[n % 4]
    )
    found = {
        "swapped": (
            0.2 if fails == NOT_TURNED_ROUND else 0.9,
            NOT_TURNED_ROUND,
            f"Turned round: {NASTY}",
        ),
        "same": (1.0, "", "There is no difference between the two images."),
        "grounded": (
            -0.03 if fails == SECOND_UNGROUNDED else 0.08 + n / 1000,
            SECOND_UNGROUNDED,
            "",
        ),
        "judged": (1.0 if fails == LOW_RATING else 4.0 + n % 2, LOW_RATING, f"4 {NASTY}"),
    }
    for number, (check, (score, why, answer)) in enumerate(found.items()):
        table = "controlled" if check in ("swapped", "same") else check
        failed = (fails == why and bool(why)) or (check == "grounded" and fails == NOTHING_AFFIRMED)
        prompt = {
            "swapped": "difference_from_captions",
            "same": "difference_from_captions",
            "judged": "judge",
        }
        model = JUDGE if check == "judged" else CHAT
        request = asked(
            prompt.get(check, ""), 60_000 + 100 * n + 10 * number + passes, model=model, latency=0.9
        )
        made.tables[table].append(
            row_of(
                rows.CheckRow,
                check,
                row.key,
                source=row.key,
                subject=row.subject,
                description=row.key,
                check=check,
                passed=not failed,
                score=score,
                text=answer,
                why=fails if failed else "",
                served=(request,) if answer else (),
            )
        )


def _comparison(row: rows.ComparisonRow, n: int) -> rows.ComparisonRow:
    differences = (
        f"Image 1 has a red ball where Image 2 has a green one {NASTY}.",
        "Image 1 has three balls, Image 2 has three as well.",
        "The lamp of Image 2 stands at the left, behind the ball.",
        "The light is warmer in Image 1.",
    )
    return replace(
        row,
        text="Commonalities: ...",
        commonalities=("Both images show a wooden table.", f"Both are lit warmly {NASTY}."),
        differences=differences,
        axes=("attributes", "counts", "locations, relative positions", ""),
        conversation=(*row.conversation[:3], rows.Turn(role="assistant", text="AB"[n % 2]))
        if n % 4
        else row.conversation[:2],
        model=LANGUAGE,
        shown="captions",
        served=(
            asked(
                "compare_captions",
                40_000 + n,
                model=LANGUAGE,
                latency=6.0 + n / 10,
                tokens=(400, 210),
            ),
        ),
    )


def _question(pair: rows.PairRow, n: int) -> rows.QuestionRow:
    about = ("both", "first", "second")[n % 3]
    return row_of(
        rows.QuestionRow,
        "question",
        pair.key,
        source=pair.key,
        question=(f"Which ball is larger? {NASTY}"),
        answer=f"The one in the {'second' if about == 'both' else about} image {NASTY}.",
        about=about,
        round=n % 4,
        rounds=4,
        model=LANGUAGE,
        served=(asked("ask_pair", 45_000 + n, model=LANGUAGE, latency=4.0, tokens=(900, 300)),),
    )


def _rejected(pair: rows.PairRow, text: str, maker: str, n: int, *, served) -> rows.RejectedTextRow:
    return row_of(
        rows.RejectedTextRow,
        maker,
        pair.key,
        source=pair.key,
        text=text,
        maker=maker,
        note=f"{maker}: {NASTY}",
        score=0.5 + n / 100,
        served=served,
    )


def _prefer(made: Handmade) -> None:
    """Let the preferences hold the descriptions that were taken, and most of the models' rejected
    texts."""
    chosen = {row.subject: row for row in made.of("differences")}
    more = {
        (row.subject, row.maker): row
        for name in ("sampled", "counterfactual")
        for row in made.of(name)
    }
    kept = []
    for row in made.of("preferences"):
        if row.subject in chosen:
            found = [more[row.subject, maker] for maker in ("sampled", "counterfactual")]
            extra = tuple(
                rows.Negative(text=one.text, maker=one.maker, note=one.note, score=one.score)
                for one in found
            )
            own = chosen[row.subject]
            kept.append(
                replace(
                    row, chosen=own.text, chosen_model=own.model, negatives=(*row.negatives, *extra)
                )
            )
    made.tables["preferences"] = kept
