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

CHAT, LANGUAGE = "Qwen/Qwen2-VL-7B-Instruct", "mistralai/Mixtral-8x7B-Instruct-v0.1"
JUDGE = "judge <b>model</b>"
NASTY = f"{HOSTILE} \u202egnorw daer\u202c"
BY_MODELS = ("sampled", "counterfactual")
FAILS = (NOT_TURNED_ROUND, SECOND_UNGROUNDED, LOW_RATING, NOTHING_AFFIRMED)
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


def request(
    prompt, number, *, model=CHAT, tokens=(1300, 60), latency=1.0, finish="stop"
) -> rows.Served:
    """Return one request; ``number`` makes its seed and tells it from others."""
    counts = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "latency": latency}
    revision = "rev-1" if model == CHAT else ""
    names = {"prompt": prompt, "model": model, "revision": revision, "seed": number}
    return rows.Served(finish_reason=finish, **names, **counts)


def sentence(first, second):
    return (
        f"The difference between the two images is that the first image {first}, while the "
        f"second image {second}."
    )


def make_served(groups: int = 6, photographs: int = 4) -> Handmade:
    """Return every table; the first pair was dropped by the writer, the second has no candidate
    that passed."""
    made = make_whole(groups, photographs)
    pairs = made.of("pairs")
    for n, pair in enumerate(pairs):
        human = (f"somebody moved the ball {NASTY}",) if n % 3 == 1 else ()
        instruction = f"paint the ball {NASTY}" if n % 3 == 2 else ""
        pairs[n] = replace(pair, human_differences=human, instruction=instruction)
    captions = [_caption(row, n) for n, row in enumerate(made.of("captions"))]
    comparisons = [_comparison(row, n) for n, row in enumerate(made.of("comparisons"))]
    made.tables |= {"pairs": pairs, "captions": captions, "comparisons": comparisons}
    made.tables["differences"] = []
    for n, pair in enumerate(pairs):
        _describe(made, pair, n)
    _prefer(made)
    return made


def _caption(row: rows.CaptionRow, n: int) -> rows.CaptionRow:
    whole = request("describe_image", 10_000 + n, latency=2.0 + n / 100, tokens=(1350, 90))
    split = request("split_sentences", 20_000 + n, latency=0.5, tokens=(120, 80))
    sentences = ("There is a table.", f"On it lie three balls {NASTY}.")
    text = " ".join(sentences)
    return replace(row, model=CHAT, sentences=sentences, text=text, served=(whole, split))


def _describe(made: Handmade, pair: rows.PairRow, n: int) -> None:
    """Add the candidates of a pair with their checks; the pair's preference and comparison are
    there already."""
    if n == 0:
        why = {"reason": "off the template", "detail": "There are"}
        made.add(described=rows.Dropped(source_key=pair.key, **why))
        made.add(differences=rows.Dropped(source_key=pair.key, reason="no description"))
        return
    bad = _described(pair, sentence(f"shows a cube {n}", f"features a lamp {NASTY}"), n, place=1)
    colour = "green" if n % 4 else "blue"
    text = sentence("displays a red ball", f"contains a {colour} ball {NASTY}")
    good = _described(pair, text, n, place=2)
    for row in [bad] if n == 1 else [bad, good]:
        made.add(described=row)
        _check(made, row, n, passes=row is good)
    if n == 1:
        none = "no description passed its checks"
        made.add(differences=rows.Dropped(source_key=pair.key, reason=none))
        made.add(questions=rows.Failed(source_key=pair.key, reason="no answer in time"))
        return
    made.add(differences=replace(good, source_key=pair.key), questions=_question(pair, n))
    other = sentence("displays a red lamp", f"contains a green ball {n}")
    by_chat = request("sampled", 51_000 + n, latency=0.7)
    made.add(sampled=_rejected(pair, other, "sampled", n, by_chat))
    by_other = request("counterfactual", 50_000 + n, model=LANGUAGE, latency=0.7)
    yellow = good.text.replace("red", "yellow")
    made.add(counterfactual=_rejected(pair, yellow, "counterfactual", n, by_other))


def _described(pair: rows.PairRow, text: str, n: int, *, place: int) -> rows.DifferenceRow:
    prompt = ("difference_from_captions", "difference_from_human", "difference_from_edit")[n % 3]
    attempts = 2 if n % 5 == 0 and place == 2 else 1
    seed = 30_000 + 10 * n + 3 * place
    requests = [
        request(prompt, number, latency=1.0 + n / 50, tokens=(2700, 45))
        for number in range(seed, seed + attempts)
    ]
    return row_of(
        *(rows.DifferenceRow, "described", pair.key, place),
        source=pair.key,
        text=text,
        first_half=text[:40],
        second_half=text[40:],
        verbs=("shows", "features") if place == 1 else ("displays", "contains"),
        attempts=attempts,
        model=CHAT,
        claims="[]",
        known=("captions", "human difference", "edit")[n % 3],
        served=tuple(requests),
    )


def _check(made: Handmade, row: rows.DifferenceRow, n: int, *, passes: bool) -> None:
    fails = "" if passes else FAILS[n % 4]
    ungrounded = fails in (SECOND_UNGROUNDED, NOTHING_AFFIRMED)
    turned, same = f"Turned round: {NASTY}", "There is no difference between the two images."
    fit = -0.03 if fails == SECOND_UNGROUNDED else 0.08 + n / 1000
    low, unlike = fails == LOW_RATING, fails == NOT_TURNED_ROUND
    checks = (
        (
            "swapped",
            "controlled",
            "difference_from_captions",
            0.2 if unlike else 0.9,
            unlike,
            turned,
        ),
        ("same", "controlled", "difference_from_captions", 1.0, False, same),
        ("grounded", "grounded", "", fit, ungrounded, ""),
        ("judged", "judged", "judge", 1.0 if low else 4.0 + n % 2, low, f"4 {NASTY}"),
    )
    for number, (check, table, prompt, score, failed, answer) in enumerate(checks):
        seed = 60_000 + 100 * n + 10 * number + passes
        model = JUDGE if check == "judged" else CHAT
        served = (request(prompt, seed, model=model, latency=0.9),) if answer else ()
        about = {"source": row.key, "subject": row.subject, "description": row.key}
        result = {"passed": not failed, "why": fails if failed else "", "score": score}
        result |= {"check": check, "text": answer, "served": served}
        made.add(**{table: row_of(rows.CheckRow, check, row.key, **about, **result)})


def _comparison(row: rows.ComparisonRow, n: int) -> rows.ComparisonRow:
    differences = (
        f"Image 1 has a red ball where Image 2 has a green one {NASTY}.",
        "Image 1 has three balls, Image 2 has three as well.",
        "The lamp of Image 2 stands at the left, behind the ball.",
        "The light is warmer in Image 1.",
    )
    answer = rows.Turn(role="assistant", text="AB"[n % 2])
    asks = {"model": LANGUAGE, "latency": 6.0 + n / 10, "tokens": (400, 210)}
    return replace(
        row,
        text="Commonalities: ...",
        commonalities=("Both images show a wooden table.", f"Both are lit warmly {NASTY}."),
        differences=differences,
        axes=("attributes", "counts", "locations, relative positions", ""),
        conversation=(*row.conversation[:3], answer) if n % 4 else row.conversation[:2],
        model=LANGUAGE,
        shown="captions",
        served=(request("compare_captions", 40_000 + n, **asks),),
    )


def _question(pair: rows.PairRow, n: int) -> rows.QuestionRow:
    about = ("both", "first", "second")[n % 3]
    image = "second" if about == "both" else about
    asks = {"model": LANGUAGE, "latency": 4.0, "tokens": (900, 300)}
    return row_of(
        *(rows.QuestionRow, "question", pair.key),
        source=pair.key,
        question=f"Which ball is larger? {NASTY}",
        answer=f"The one in the {image} image {NASTY}.",
        about=about,
        round=n % 4,
        rounds=4,
        model=LANGUAGE,
        served=(request("ask_pair", 45_000 + n, **asks),),
    )


def _rejected(pair: rows.PairRow, text: str, maker: str, n: int, served) -> rows.RejectedTextRow:
    how = {"note": f"{maker}: {NASTY}", "score": 0.5 + n / 100, "served": (served,)}
    about = {"source": pair.key, "text": text, "maker": maker}
    return row_of(rows.RejectedTextRow, maker, pair.key, **about, **how)


def _prefer(made: Handmade) -> None:
    """Let the preferences hold the descriptions that were taken, and most of the models' rejected
    texts."""
    chosen = {row.subject: row for row in made.of("differences")}
    texts = {name: {row.subject: row for row in made.of(name)} for name in BY_MODELS}
    kept = []
    for row in made.of("preferences"):
        if row.subject not in chosen:
            continue
        negatives = list(row.negatives)
        for name in BY_MODELS:
            text = texts[name][row.subject]
            values = {"text": text.text, "note": text.note, "score": text.score}
            negatives.append(rows.Negative(maker=text.maker, **values))
        own = chosen[row.subject]
        about = {"chosen": own.text, "chosen_model": own.model}
        kept.append(replace(row, negatives=tuple(negatives), **about))
    made.tables["preferences"] = kept
