"""All forms of export."""

from schemas.errors import ConfigError
from tasks.export.form import Form
from tasks.export.forms import hf, llamafactory, ms_swift, trl

FORMATS: dict[str, Form] = {form.name: form for form in (hf.FORM, trl.FORM, llamafactory.FORM, ms_swift.FORM)}


def find_form(name: str) -> Form:
    """Return a form of export.

    Raises:
        ConfigError: there is none of this name.
    """
    if name not in FORMATS:
        raise ConfigError(f"--format {name}: no such format. There is: {', '.join(FORMATS)}")
    return FORMATS[name]
