"""Write conversations about commonalities and differences (CaD) as LLaVA's training takes them: one JSON list.

``image`` is one name, or a list where there are two, which CaD-VI's and VLM-R1's trainers take.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export.checks.llava import read_samples
from pairwright.tasks.export.form import Form, Setting, Sizes
from pairwright.tasks.export.media_folder import MediaFolder
from pairwright.tasks.export.place_images import PLACE, SHAREGPT_ROLES, place_images
from pairwright.tasks.export.write_lines import JSON_LIST, LineWriters


@dataclass(frozen=True)
class LlavaWriter:
    """Write conversations, the last answer of which is the chosen text."""

    lists: LineWriters
    media: MediaFolder

    def add(self, row: PreferenceRow) -> None:
        """Write a conversation.

        Raises:
            UnheldError: its turns do not alternate, or its words have marks of images.
        """
        turns, before = place_images(row, [PLACE]), self.media.written
        names = [self.media.put(image) for image in row.images]
        said = [{"from": SHAREGPT_ROLES[turn.role], "value": turn.text} for turn in turns]
        record = {
            "id": row.key,
            "image": names[0] if len(names) == 1 else names,
            "conversations": [*said, {"from": "gpt", "value": row.chosen}],
        }
        self.lists.add(row.split, record, beside=self.media.written - before)

    def sizes(self) -> Sizes:
        """Return what was written."""
        return self.lists.sizes()


@contextmanager
def opened(folder: Path, setting: Setting) -> Generator[LlavaWriter]:  # noqa: ARG001 - as for every form
    """Give what writes into a folder."""
    with LineWriters(folder / "data", JSON_LIST) as lists:
        yield LlavaWriter(lists, MediaFolder(folder))


FORM = Form(
    name="llava",
    about="conversations about commonalities and differences (CaD), for LLaVA-style tuning: JSON and image files",
    cannot=(
        "It holds conversations, which have no rejected side: preferences are in the other formats. The original "
        "LLaVA-1.5 takes one image per conversation; trainers such as CaD-VI's and VLM-R1's take these lists of two."
    ),
    opens=opened,
    check=read_samples,
    use="```bash\n--data_path FOLDER/data/train.json --image_folder FOLDER\n```",
    owns=frozenset({"data", "images"}),
    reads="conversations",
)
