"""Fetch and verify all weights that a build would load, ahead of it.

Reads a profile. Which files these are, the stages say themselves: each that has a ``pin`` looks for them when a build
starts, and does so here while an inventory is taken. Models that vLLM serves are a matter of their own: they are large,
and another program loads them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich.table import Table

from pairwright.flows.find_models import served_models
from pairwright.flows.load_profile import load_profile
from pairwright.flows.pipeline import Pipeline
from pairwright.flows.run_build import with_source
from pairwright.schemas.config import Profile
from pairwright.schemas.errors import ModelError
from pairwright.schemas.served import ChatConfig
from pairwright.tasks.models.verify_weights import Verified, is_on_hub, list_here, list_on_hub, taking_inventory, verify

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """Outcome of fetching: what is here now, and what could not be had."""

    files: list[Verified] = field(default_factory=list[Verified])
    problems: list[str] = field(default_factory=list[str])
    """What keeps a build from starting, beside the files' own faults."""

    @property
    def faults(self) -> list[str]:
        """Return everything that is wrong, each once."""
        return list(dict.fromkeys([*(file.fault for file in self.files if file.fault), *self.problems]))

    def joined(self, other: "Fetched") -> "Fetched":
        """Return both together."""
        return Fetched(files=[*self.files, *other.files], problems=[*self.problems, *other.problems])


def profile_to_fetch(name: str, settings: Sequence[str], source: str | None) -> Profile:
    """Return the profile whose weights are meant; where it names no source, a folder of images stands for it.

    Raises:
        ConfigError: the profile or a setting is wrong.
        SourceError: there is no such source.
    """
    profile = load_profile(name, settings)
    if source is None and not profile.source:
        return profile.model_copy(update={"source": "folder:"})
    return with_source(profile, source)


def fetch_weights(profile: Profile, until: str, *, fetch: bool, say: Say) -> Fetched:
    """Have every file that a build's stages load, and verify each; without ``fetch`` nothing comes from the network.

    Raises:
        ConfigError: there is no such stage.
    """
    problems: list[str] = []
    pins = {stage.section: stage.pin for stage in Pipeline(profile, until).running if stage.pin}
    with taking_inventory(fetch=fetch, say=say) as inventory:
        for section, pin in pins.items():
            inventory.lacking = False
            try:
                pin(profile.section(section))
            except Exception as error:  # noqa: BLE001 - an empty file may stand in for what is missing: anything may follow
                if not inventory.lacking:
                    problems.append(
                        str(error) if isinstance(error, ModelError) else f"{section}: {type(error).__name__}: {error}"
                    )
    return Fetched(files=[file for files in inventory.found.values() for file in files], problems=problems)


def fetch_served(profile: Profile, until: str, *, fetch: bool, say: Say) -> Fetched:
    """Have the files of the models that the build starts vLLM for, and verify each."""
    done = Fetched()
    for name, chat in _hub_models(profile, until).items():
        try:
            wanted = list_on_hub(chat, name)[0] if fetch else list_here(chat, name)
        except ModelError as error:
            done.problems.append(str(error))
        else:
            say(f"{wanted.field}: {wanted.origin} {', '.join(wanted.names)}")
            done.files.extend(verify(wanted, fetch=fetch))
    return done


def tell_served(profile: Profile, until: str, *, ask: bool, say: Say) -> None:
    """Say which models vLLM loads that nothing was done about, and how large they are where the Hub may be asked."""
    for name, chat in _hub_models(profile, until).items():
        try:
            size = f" ({shown_size(list_on_hub(chat, name)[1])})" if ask else ""
        except ModelError:
            size = ""
        say(
            f"Left out: {chat.model}{size}, which vLLM loads ({name}). Add --served, or let vLLM fetch it: "
            f"--set {name}.launch.download=true"
        )


def files_table(files: Sequence[Verified]) -> Table:
    """Return the table of what is here: file by file, how large, and by what verified."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, wraps in {"section": False, "model": True, "file": True, "size": False, "verified by": False}.items():
        table.add_column(name, justify="right" if name == "size" else "left", no_wrap=not wraps, overflow="fold")
    for file in files:
        size = shown_size(file.size) if file.folder else ""
        how = file.how if not file.fault else "DAMAGED" if file.folder else "NOT HERE"
        table.add_row(file.field, file.model, file.file, size, how)
    return table


def places_of(files: Sequence[Verified]) -> list[str]:
    """Return where files are, in words: how many, and how large, in each folder."""
    folders = dict.fromkeys(file.folder for file in files if file.folder)
    inside = {folder: [file.size for file in files if file.folder == folder] for folder in folders}
    return [f"{folder}: {_files(len(sizes))}, {shown_size(sum(sizes))}" for folder, sizes in inside.items()]


def shown_size(size: int) -> str:
    """Return a number of bytes for people."""
    unit, name = next(((unit, name) for unit, name in ((1e9, "GB"), (1e6, "MB")) if size >= unit), (1e3, "kB"))
    return f"{size / unit:.1f} {name}"


def _files(count: int) -> str:
    return f"{count} file" if count == 1 else f"{count} files"


def _hub_models(profile: Profile, until: str) -> dict[str, ChatConfig]:
    return {name: chat for name, chat in served_models(profile, until).items() if is_on_hub(chat)}
