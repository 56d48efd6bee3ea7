"""Make caption rows: of the caption that an image's source gave, or of what was written."""

from pairwright.schemas.rows import CaptionRow, ImageRow, Served, make_key


def given_caption(row: ImageRow) -> str:
    """Return the longest caption that the source gave, on one line; empty: none."""
    return max((" ".join(text.split()) for text in row.captions), key=len, default="")


def caption_row(
    row: ImageRow, text: str, sentences: tuple[str, ...], *, model: str, served: tuple[Served, ...] = ()
) -> CaptionRow:
    """Return the row of a description; where served models had a hand in it, other words make another row."""
    return CaptionRow(
        key=make_key("caption", row.key, text, *sentences) if served else row.key,
        source_key=row.key,
        subject=row.key,
        text=text,
        sentences=sentences,
        model=model,
        served=served,
    )
