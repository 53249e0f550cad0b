"""The changelog is collected from its fragments, each of which says of which sort it is."""

from __future__ import annotations

import runpy

from tests.house.source import ROOT

COLLECT = runpy.run_path(str(ROOT / "changelog.d" / "collect.py"))
BEFORE = (
    "# Changelog\n\nNewest first.\n\n## 0.1.0 (unreleased)\n\nThe first.\n\n### Added\n\n- One.\n"
)


def test_every_fragment_has_a_sort():
    """`NAME.SORT.md`, with text in it."""
    fragments = sorted((ROOT / "changelog.d").glob("*.*.md"))

    assert [
        path.name for path in fragments if path.name.split(".")[1] not in COLLECT["SORTS"]
    ] == []
    assert [path.name for path in fragments if not path.read_text("utf-8").strip()] == []


def test_a_section_is_extended():
    """New items come after those that are there, and lists in the order of their urgency."""
    text = COLLECT["collected"](BEFORE, "0.1.0", {"added": ["Two.\nToo."], "security": ["Three."]})

    assert text == (
        "# Changelog\n\nNewest first.\n\n## 0.1.0 (unreleased)\n\nThe first.\n\n"
        "### Security\n\n- Three.\n\n### Added\n\n- One.\n- Two.\n  Too.\n\n"
    )


def test_a_new_version_comes_first():
    """The sections of released versions stay as they are."""
    text = COLLECT["collected"](BEFORE, "0.2.0", {"fixed": ["Two."]})

    assert text.startswith(
        "# Changelog\n\nNewest first.\n\n## 0.2.0 (unreleased)\n\n### Fixed\n\n- Two.\n\n"
    )
    assert text.endswith("## 0.1.0 (unreleased)\n\nThe first.\n\n### Added\n\n- One.\n")
