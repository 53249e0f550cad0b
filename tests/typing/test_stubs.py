"""What type checkers and editors are told of the verbs."""

from __future__ import annotations

from tests.typing import stubs


def test_the_stub_is_that_of_the_verbs():
    """Otherwise `python -m tests.typing.stubs` writes it anew."""
    assert stubs.PATH.read_text("utf-8") == stubs.rendered()
