"""Secrets in addresses: refused as text, hidden in messages, taken from the environment."""

import pytest

from pairwright.schemas.addresses import (
    check_address,
    find_variables,
    hide_secrets,
    put_in,
    take_out,
)
from pairwright.schemas.errors import ConfigError

SECRETS = (
    "webdataset:http://bob:PASS3WORD@host/x.tar",
    "http://PASS3WORD@host/x.tar",
    "parquet:https://host/x?X-Amz-Signature=PASS3WORD&X-Amz-Date=1",
    "https://host/x.parquet?sv=1&sig=PASS3WORD",
    "source=s3://key:PASS3WORD@bucket/photos",
)
CLEAN = (
    "photos",
    "folder:/home/me@work/photos",
    "s3://bucket/shard-?.tar",
    "https://host/x.tar?version=3",
    "hf://datasets/owner/name@main/x.parquet",
    "http://${USER}:${PASSWORD}@host/x.tar?${SIGNATURE}",
    "https://host/x?sig=${SIGNATURE}",
)


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_address(text)
    assert "PASS3WORD" not in str(error.value)
    assert "PASS3WORD" not in hide_secrets(f"GET {text} failed: 403")


@pytest.mark.parametrize("text", CLEAN)
def test_other_addresses_pass(text: str) -> None:
    check_address(text)


def test_variables_are_put_in_and_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "deep4secret")
    address = "http://host/${PLACE}/x.tar"
    variables = find_variables(address)
    opened = put_in(address, variables)
    assert opened == "http://host/deep4secret/x.tar"
    assert take_out(opened, variables) == address
    assert hide_secrets(f"no such file: {opened}") == f"no such file: {address}"
    with pytest.raises(ConfigError, match="NO_SUCH_PLACE"):
        find_variables("http://${NO_SUCH_PLACE}@host/x.tar")
