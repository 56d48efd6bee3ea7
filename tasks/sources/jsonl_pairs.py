"""Read pairs of images from a manifest: a file of JSON Lines, each line an object that names two images.

A line looks like ``{"image1": "before.jpg", "image2": "after.jpg", "difference": "The dog left."}``, the images in the
source's own order. ``tasks.sources.jsonl`` reads it, and names the fields for images, licence, group, split and id;
beside those, a pair may have:

* ``difference`` or ``differences``, and likewise ``caption``, ``captions`` and ``text`` (or the field that
  ``reading.caption_column`` names): what people wrote about the difference, one text or a list;
* ``caption1`` and ``caption2``: captions of the first and of the second image;
* ``instruction``: the edit that made the second image of the first;
* ``no_change``: true where nothing changed, so that the images may be the same. Two equal images are dropped otherwise.

A line of one image is dropped.
"""

from functools import partial

from pairwright.schemas.rows import PairRow
from pairwright.tasks.sources.jsonl import is_manifest, list_lines, read_named
from pairwright.tasks.sources.reader import Reader

READER = Reader(
    kind="jsonl-pairs",
    about="a manifest of pairs: JSON Lines that name two images, with differences or an edit instruction",
    example="jsonl-pairs:pairs.jsonl",
    list_items=partial(list_lines, pairs=True),
    read_items=read_named,
    brings=(PairRow,),
    recognises=partial(is_manifest, images=2),
)
