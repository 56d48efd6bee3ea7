"""Which models a build finds before it starts."""

from pairwright.flows.find_models import pin_served
from pairwright.flows.load_profile import load_profile
from tests.fixtures.chat_server import chat_server


def test_what_checks_or_samples_the_writer_asks_the_model_that_writes():
    settings = ["differences.writer=served", "controls.enabled=true", "sampled_texts.enabled=true"]
    with chat_server(str, models=("general",)) as one, chat_server(str, models=("own",)) as other:
        described = f"models.own={{endpoint: '{other.url}', structured_output: 'none'}}"
        for name, own in (("general", []), ("own", [described, "differences.model=own"])):
            given = [f"models.chat.endpoint={one.url}", "models.chat.structured_output='none'"]
            found = pin_served(load_profile("scenes", [*settings, *given, *own]), "")
            sections = [
                found.section(section).model_dump()["chat"]["model"]
                for section in ("differences", "controls", "sampled_texts")
            ]
            assert sections == [name] * 3
