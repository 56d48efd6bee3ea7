"""Keep the images of an export as files: the source's bytes, named by their content, each written once."""

from dataclasses import dataclass
from pathlib import Path

from pairwright.schemas.rows import make_key
from pairwright.tasks.export.hf_schema import ending_of

IMAGES = "images"


@dataclass
class MediaFolder:
    """Write images below ``folder``/images, 256 folders of them."""

    folder: Path
    written: int = 0
    """Bytes of all files."""

    def put(self, data: bytes) -> str:
        """Write an image unless it is there; return its path from the folder. No name comes from outside."""
        key = make_key(data)
        name = f"{IMAGES}/{key[:2]}/{key}.{ending_of(data)}"
        path = self.folder / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            self.written += len(data)
        return name
