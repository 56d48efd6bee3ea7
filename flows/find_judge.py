"""Find the served model that is evaluated, and the one that judges: an address, or what a profile says."""

from pairwright.flows.load_profile import load_profile
from pairwright.schemas.served import ChatConfig


def served_at(url: str, model: str) -> ChatConfig:
    """Return how a served model is asked that is evaluated: greedily, in the words of the benchmark alone."""
    return ChatConfig(endpoint=(url,), model=model, temperature=0.0, top_p=1.0)


def find_judge(named: str, model: str = "") -> ChatConfig:
    """Return how a judge is asked.

    Args:
        named: an address, or a profile, whose judge it is, else its model that sees images.
        model: its name on the server; empty: what the profile says, or the only one.

    Raises:
        ConfigError: there is no such profile.
    """
    if "://" in named:
        return ChatConfig(endpoint=(named,), model=model)
    profile = load_profile(named)
    judge = profile.served["judge"]
    return judge.model_copy(update={"model": model}) if model else judge
