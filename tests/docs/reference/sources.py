"""All that is generated, by the name of its section."""

from __future__ import annotations

from tests.docs.reference import commands, errors, http, integrations, library, metrics, settings

SOURCES = (commands, errors, http, integrations, library, metrics, settings)


def all_sections() -> dict[str, str]:
    """What every source has to say; a section has one source."""
    made: dict[str, str] = {}
    for source in SOURCES:
        sections = source.sections()
        assert not made.keys() & sections.keys(), made.keys() & sections.keys()
        made |= sections
    return made
