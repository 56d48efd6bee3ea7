"""What tests of versions share."""

from tests.fixtures.exports import offline  # noqa: F401
