"""Put a benchmark's words into a question as they were published, unless they try to be more than words."""

from pairwright.tasks.serving.untrusted import as_data


def as_written(text: str) -> str:
    """Return a text as it is; one with control tokens or forged headers is cleaned of them, on one line."""
    clean = as_data(text)
    return text if clean == " ".join(text.split()) else clean
