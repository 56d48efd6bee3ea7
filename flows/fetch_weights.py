"""Fetch and verify all weights that a build would load, ahead of it.

Which files these are, the stages say themselves: each that has a ``pin`` looks for them when a build starts, and does
so here while an inventory is taken. Models that vLLM serves are a matter of their own: large, and loaded elsewhere.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pairwright.flows.find_models import served_models
from pairwright.flows.load_profile import load_profile
from pairwright.flows.pipeline import Pipeline
from pairwright.flows.run_build import with_source
from pairwright.schemas.config import Profile
from pairwright.schemas.errors import ModelError
from pairwright.schemas.writing import ChatConfig
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

    @property
    def places(self) -> dict[str, list[int]]:
        """Return the sizes of the files that are in each folder."""
        folders = dict.fromkeys(file.folder for file in self.files if file.folder)
        return {folder: [file.size for file in self.files if file.folder == folder] for folder in folders}


def profile_to_fetch(name: str, settings: Sequence[str], source: str | None = None) -> Profile:
    """Return the profile whose weights are meant; where it names no source, a folder of images stands for it."""
    profile = load_profile(name, settings)
    if source is None and not profile.source:
        return profile.model_copy(update={"source": "folder:"})
    return with_source(profile, source)


def fetch_weights(profile: Profile, until: str, *, fetch: bool, say: Say) -> Fetched:
    """Have every file that a build's stages load, and verify each; without ``fetch`` nothing comes from the network."""
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


def fetch_served(profile: Profile, until: str, done: Fetched, *, fetch: bool, say: Say) -> None:
    """Have the files of the models that the build starts vLLM for, too, and verify each."""
    for name, chat in _hub_models(profile, until):
        try:
            wanted = list_on_hub(chat, name)[0] if fetch else list_here(chat, name)
        except ModelError as error:
            done.problems.append(str(error))
        else:
            say(f"{wanted.field}: {wanted.origin} {', '.join(wanted.names)}")
            done.files.extend(verify(wanted, fetch=fetch))


def left_out(profile: Profile, until: str, *, ask: bool) -> Iterator[tuple[str, str, int]]:
    """Yield the models that vLLM loads: field, name, size; 0 where the Hub may not be asked, or does not answer."""
    for name, chat in _hub_models(profile, until):
        size = 0
        if ask:
            with suppress(ModelError):
                size = list_on_hub(chat, name)[1]
        yield name, chat.model, size


def _hub_models(profile: Profile, until: str) -> list[tuple[str, ChatConfig]]:
    return [(name, chat) for name, chat in served_models(profile, until).items() if is_on_hub(chat)]
