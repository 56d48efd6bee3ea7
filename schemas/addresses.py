"""Addresses with secrets: refused as text, which records would keep; taken from the environment.

``http://${USER}:${PASSWORD}@host/x.tar?${SIGNATURE}`` is stored as written. The variables are put
in where the address is opened, and taken out of names and messages again.
"""

import os
import re
from collections.abc import Mapping

from pairwright.schemas.errors import ConfigError

VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}")
_URL = re.compile(r"(?P<scheme>\w[\w+.-]*)://(?P<user>[^/@\s]*@)?(?P<rest>[^\s]*)")
_QUERY = re.compile(r"[?&;](?P<name>[^=&;\s]+)=(?P<value>[^&;\s]*)")
_SECRET = re.compile(
    r"sig|token|key|secret|passw|pwd|credential|auth|session|policy|hmac", re.IGNORECASE
)
HIDDEN = "..."
MIN_SECRET = 4  # characters; a shorter value would be found in any text
_PUT_IN: dict[str, str] = {}
"""Values that this process has put into addresses, by placeholder."""


def check_address(text: str) -> None:
    """Raise ``ConfigError`` if an address in a text has a user, a password or a signature."""
    found = _URL.sub(_hide_in_url, text)
    if found != text:
        raise ConfigError(
            f"{found}: the address holds a password, token or signature, which records, rows and "
            "logs would keep. Put it into an environment variable and name this in the address: "
            "'http://${NAME}@host/file.tar' or 'https://host/file.tar?${SIGNATURE}'"
        )


def hide_secrets(text: str) -> str:
    """Return a text without the secrets of its addresses, or those that were put in before."""
    return _URL.sub(_hide_in_url, take_out(text, _PUT_IN))


def _hide_in_url(match: re.Match[str]) -> str:
    user = match["user"] or ""
    if VARIABLE.sub("", user).strip(":@"):
        user = f"{HIDDEN}@"
    rest = _QUERY.sub(_hide_in_query, match["rest"])
    return f"{match['scheme']}://{user}{rest}"


def _hide_in_query(match: re.Match[str]) -> str:
    if not _SECRET.search(match["name"]) or not VARIABLE.sub("", match["value"]):
        return match[0]
    return f"{match[0][0]}{match['name']}={HIDDEN}"


def find_variables(address: str) -> dict[str, str]:
    """Return the values of the environment variables that an address names, by placeholder."""
    values: dict[str, str] = {}
    for name in VARIABLE.findall(address) if "://" in address else ():
        value = os.environ.get(name, "")
        if not value:
            raise ConfigError(f"{address}: the environment variable {name} is not set")
        values[f"${{{name}}}"] = value
    _PUT_IN.update({name: value for name, value in values.items() if len(value) >= MIN_SECRET})
    return values


def put_in(text: str, variables: Mapping[str, str]) -> str:
    """Return a text with the values of variables in place of their names."""
    for placeholder, value in variables.items():
        text = text.replace(placeholder, value)
    return text


def take_out(text: str, variables: Mapping[str, str]) -> str:
    """Return a text with the names of variables in place of their values."""
    for placeholder, value in sorted(variables.items(), key=lambda item: -len(item[1])):
        text = text.replace(value, placeholder)
    return text
