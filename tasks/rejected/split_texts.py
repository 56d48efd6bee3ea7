"""Split preferred texts into self-contained statements, which CLIP compares with images.

Reads ``DifferenceRow``, and ``PreferenceRow`` as a source gave it; writes one ``StatementsRow`` per
text about an image (paper 004, section 3.2): each half of a description without its denials, or the
preferred text. Needs a served model, the paper's LLaMA-3; without one the table is empty, and texts
are split at the ends of sentences. Ours: every content word of a statement must come from the text,
and each of its sentences must be kept; else they are split at the ends of sentences, too.
"""

from collections.abc import Sequence
from operator import attrgetter

from pairwright.schemas.rows import DifferenceRow, Dropped, PreferenceRow, StatementsRow, make_key
from pairwright.schemas.writing import StatementsConfig
from pairwright.tasks.rejected.choose_removals import MAX_CHARACTERS, preferred_texts
from pairwright.tasks.serving.ask_rows import asking
from pairwright.tasks.serving.chat import Chat
from pairwright.tasks.serving.split_text import SPLIT, ask_split, read_split
from pairwright.tasks.store.stage import Stage
from pairwright.tasks.texts.words import split_by_rules

BY_RULES = "split where sentences end: "


@asking
async def split_texts(
    row: DifferenceRow | PreferenceRow, chat: Chat, *, config: StatementsConfig
) -> Sequence[StatementsRow] | Dropped:
    """Return the statements of each text of a row."""
    texts = [text for text in dict.fromkeys(preferred_texts(row)) if text.strip()]
    if not texts:
        return Dropped(source_key=row.key, reason="nothing is said to be there")
    return [await _split(row, text, chat, config) for text in texts]


async def _split(
    row: DifferenceRow | PreferenceRow,
    text: str,
    chat: Chat,
    config: StatementsConfig,
) -> StatementsRow:
    scored = text[:MAX_CHARACTERS]
    key = make_key(row.key, text)
    answer = await ask_split(
        chat,
        scored,
        key=key,
        seed=config.seed,
        max_tokens=config.max_tokens,
    )
    statements: tuple[str, ...] = ()
    why = ""
    if answer is None:
        why = "the question is refused"
    elif answer.refused:
        why = answer.refused.by_tokens(f"statements.max_tokens={config.max_tokens}").reason
    else:
        statements = read_split(answer, scored, least_known=1.0)
        if not statements:
            why = "the model's statements say something else"
    sentences = statements or split_by_rules(scored)
    return StatementsRow(
        key=make_key("statements", row.key, text, *sentences),
        source_key=row.key,
        subject=row.subject,
        text=text,
        sentences=sentences,
        model=answer.served.model if answer and statements else "rules",
        why=BY_RULES + why if why else "",
        served=(answer.served,) if answer else (),
    )


STAGE = Stage(
    name="statements",
    version=3,
    group="rejected",
    reads={"differences": DifferenceRow, "given_preferences": PreferenceRow},
    writes=StatementsRow,
    function=split_texts,
    config=lambda profile: profile.complete(
        profile.statements.fill(enabled=profile.rejections.by_vectors)
    ),
    prompts=(SPLIT,),
    enabled=attrgetter("is_served"),
    without=("images", "rejected_images"),
    journal="answers",
)
