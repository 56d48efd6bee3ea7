"""All forms of export."""

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.plugins import Registry
from pairwright.tasks.export.form import Form
from pairwright.tasks.export.forms import hf, llamafactory, llava, ms_swift, openai_batch, rlaif_v, trl, webdataset

_FORMS = (hf, trl, llamafactory, ms_swift, rlaif_v, llava, webdataset, openai_batch)
FORMATS = Registry("formats", Form, (module.FORM for module in _FORMS))


def find_form(name: str) -> Form:
    """Return a form of export.

    Raises:
        ConfigError: there is none of this name.
    """
    if name not in FORMATS:
        raise ConfigError(f"--format {name}: no such format. There are: {', '.join(FORMATS)}")
    return FORMATS[name]
