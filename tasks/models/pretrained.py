"""Find a model that lies as transformers' ``save_pretrained`` writes it: a folder, or its name on the Hub.

Reads local folders and the Hub's local cache; loads nothing, and goes to the network only where it may download.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pairwright.tasks.models.weights import HubFiles, absolute, check_revision, find_local, find_on_hub, identify_files


def is_local(model: str) -> bool:
    """Say whether a model is a folder; a name on the Hub is ``owner/name``."""
    return model.startswith((".", "/", "~")) or Path(model).is_dir()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretrained:
    """Where models of one kind are, and which of their files are needed."""

    field: str
    """The section of the profile that names one, for messages."""
    kind: str
    """What a local one is called ("DINOv2")."""
    known: Mapping[str, str]
    """The commits that are taken where a profile names none, by name on the Hub."""
    weights: tuple[str, ...]
    """Alternatives on the Hub, the best first."""
    beside: tuple[str, ...]
    """Other files on the Hub, all of them needed."""

    def identify(self, model: str, revision: str) -> str:
        """Return a model's name with its revision, without looking for it."""
        name = self.kind if is_local(model) and revision else model
        return f"{name} {revision or self.known.get(model, 'main')}"

    def pin(self, model: str, revision: str, *, download: bool) -> dict[str, str]:
        """Return the ``revision`` that this machine has, and for a folder the ``model`` that means it from anywhere."""
        folder = self.checked_folder(model, revision, download=download)
        if not is_local(model):
            return {"revision": folder.name}
        return {"revision": identify_files(find_local(f"{self.field}.model", folder)), "model": absolute(model)}

    def folder(self, model: str, revision: str, *, download: bool = False) -> Path:
        """Return where a model lies; local files are not looked at."""
        if is_local(model):
            return Path(model).expanduser()
        revision = revision or self.known.get(model, "")
        files = HubFiles(
            field=self.field, repository=model, revision=revision, weights=self.weights, beside=self.beside
        )
        return find_on_hub(files, download=download).parent

    def checked_folder(self, model: str, revision: str, *, download: bool = False) -> Path:
        """Return where a model lies, its local files being those that the revision names."""
        folder = self.folder(model, revision, download=download)
        if is_local(model):
            check_revision(self.field, revision, identify_files(find_local(f"{self.field}.model", folder)), folder)
        return folder
