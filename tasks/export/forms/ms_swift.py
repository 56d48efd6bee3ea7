"""Write what ms-swift takes for a preference: JSON Lines of messages, with a rejected text or with rejected images.

A line rejects one thing, so a preference that rejects a text and an image gives two. They are in files of their own:
where both kinds are in one, ms-swift sees an empty ``rejected_response`` in half of its rows and refuses them.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export.checks.ms_swift import read_samples
from pairwright.tasks.export.form import Form, Setting, Sizes, UnheldError
from pairwright.tasks.export.media_folder import MediaFolder
from pairwright.tasks.export.place_images import place_images, rejected_text
from pairwright.tasks.export.write_lines import LineWriters

MARKS = ("<image>", "<video>", "<audio>", "<bbox>", "<ref-object>")
"""What ms-swift replaces in texts."""


@dataclass(frozen=True)
class SwiftWriter:
    """Write preferences between texts and between images."""

    lines: LineWriters
    media: MediaFolder

    def add(self, row: PreferenceRow) -> None:
        """Write a row.

        Raises:
            UnheldError: it rejects nothing, its turns do not alternate, or its words have marks of images.
        """
        turns = place_images(row, MARKS)
        if not row.rejected and not row.rejected_images:
            raise UnheldError("nothing rejected")
        messages = [{"role": turn.role, "content": turn.text} for turn in turns]
        messages.append({"role": "assistant", "content": row.chosen})
        if row.rejected:
            self._write(row.split, messages, row.images, {"rejected_response": rejected_text(row)})
        if row.rejected_images:
            before = self.media.written
            rejected = [self.media.put(image) for image in row.rejected_images]
            more = {"rejected_images": rejected}
            self._write(f"{row.split}-images", messages, row.images, more, beside=self.media.written - before)

    def _write(
        self,
        name: str,
        messages: Sequence[dict[str, str]],
        images: Sequence[bytes],
        rejected: dict[str, Any],
        *,
        beside: int = 0,
    ) -> None:
        before = self.media.written
        record = {"messages": messages, "images": [self.media.put(image) for image in images], **rejected}
        self.lines.add(name, record, beside=beside + self.media.written - before)

    def sizes(self) -> Sizes:
        """Return what was written."""
        return self.lines.sizes()


@contextmanager
def opened(folder: Path, setting: Setting) -> Generator[SwiftWriter]:  # noqa: ARG001 - as for every form
    """Give what writes into a folder."""
    with LineWriters(folder / "data") as lines:
        yield SwiftWriter(lines, MediaFolder(folder))


FORM = Form(
    name="ms-swift",
    about="preferences for ms-swift, with rejected texts and with rejected images: JSON Lines and image files",
    cannot=(
        "A line rejects one text or one set of images, so further negatives are not in it; nor are licences and how "
        "something was made. Rejected images are in files of their own (train-images.jsonl)."
    ),
    opens=opened,
    check=read_samples,
    use=(
        "```bash\n"
        "ROOT_IMAGE_DIR=FOLDER swift rlhf --rlhf_type dpo --dataset FOLDER/data/train.jsonl \\\n"
        "    --val_dataset FOLDER/data/validation.jsonl --model MODEL\n"
        "```\n\n"
        "Paths of images are from the folder, which `ROOT_IMAGE_DIR` names. `train-images.jsonl` has the rows whose\n"
        "images are rejected; train on either file or on both."
    ),
    owns=frozenset({"data", "images"}),
)
