"""Write the tags of an image as prompts of Grounding DINO: "tag . tag .", as many tags to a prompt as fit.

Tags become token ids one by one, and prompts are put together from ids: where a tag stands in a prompt is known and not
searched for, whatever its letters are. No text of a tag can end it (the model splits phrases at "." and "?") or start a
prompt's frame ("[SEP]"): such tokens are taken out of tags.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

LONGEST = 2000
"""Letters of a tag; longer ones are no names of things, and are left out without being read (ours)."""
Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """Be the place of a tag in a prompt."""

    tag: int
    """Place of the tag among those of its image."""
    start: int
    """Its first token."""
    stop: int
    """The one after its last."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Be a prompt, in tokens."""

    ids: Ids
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TagPacker:
    """Pack tags into prompts of a tokenizer."""

    tokenize: Callable[[list[str]], list[list[int]]]
    """From texts to ids, without a frame."""
    first: int
    """Begins a prompt ("[CLS]")."""
    last: int
    """Ends it ("[SEP]")."""
    stop: int
    """Ends a tag (".")."""
    unknown: int
    forbidden: frozenset[int]
    """Ids that mean something else in a prompt than a word."""
    limit: int
    """Tokens of a prompt at the most, its frame included."""

    def __call__(self, images: Sequence[Sequence[str]]) -> list[list[Prompt]]:
        """Return the prompts of each image's tags, in order.

        Tags are left out that no prompt can hold: those longer than the limit, and those of which nothing is left or
        known.
        """
        known = self._ids({name for names in images for name in names})
        return [self._pack(names, known) for names in images]

    def _ids(self, names: set[str]) -> Mapping[str, Ids]:
        """Return the ids of each name that can be asked for."""
        short = sorted(name for name in names if len(name) <= LONGEST)
        # What is no Unicode (a lone surrogate) cannot be tokenized.
        clean = [name.encode("utf-8", "ignore").decode().lower() for name in short]
        read = self.tokenize(clean) if clean else []
        ids = (tuple(one for one in found if one not in self.forbidden) for found in read)
        return {
            name: found
            for name, found in zip(short, ids, strict=True)
            if set(found) - {self.unknown} and self._fits(len(found))
        }

    def _fits(self, tokens: int) -> bool:
        """Say whether so many tokens fit between a prompt's frame, with one that ends the last tag."""
        return tokens + 3 <= self.limit

    def _pack(self, names: Sequence[str], known: Mapping[str, Ids]) -> list[Prompt]:
        prompts: list[Prompt] = []
        ids, spans = [self.first], list[Span]()
        for tag, name in enumerate(names):
            if name not in known:
                continue
            if spans and not self._fits(len(ids) - 1 + len(known[name])):
                prompts.append(Prompt((*ids, self.last), tuple(spans)))
                ids, spans = [self.first], []
            spans.append(Span(tag, len(ids), len(ids) + len(known[name])))
            ids += [*known[name], self.stop]
        return [*prompts, Prompt((*ids, self.last), tuple(spans))] if spans else []
