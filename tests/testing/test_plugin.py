"""The plugin in projects of users: a real pytest in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

# A user's project has none of these, and to import them takes longer than the rest of a run.
OTHER_PLUGINS = (
    "anyio",
    "asyncio",
    "faker",
    "hypothesispytest",
    "randomly",
    "schemathesis",
    "xdist",
)
PROGRAM = """
import rowlock

app = rowlock.App()

@app.task
def welcome(email: str) -> None: ...

def signup(email: str) -> None:
    welcome.enqueue(email=email)
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.delenv("ROWLOCK_APP", raising=False)
    pytester.makepyfile(shop=PROGRAM)
    return pytester


def run(project: pytest.Pytester, *words: str) -> pytest.RunResult:
    without = [word for name in OTHER_PLUGINS for word in ("-p", f"no:{name}")]
    return project.runpytest_subprocess(*without, "--strict-markers", *words)


@pytest.mark.parametrize("named_by", ["settings", "environment", "fixture"])
def test_the_app_of_the_project_is_tested(project, monkeypatch, named_by):
    """Its own database is never opened, and each test begins with an empty one."""
    if named_by == "settings":
        project.makeini("[pytest]\nrowlock_app = shop:app")
    elif named_by == "environment":
        monkeypatch.setenv("ROWLOCK_APP", "shop:app")
    else:
        project.makeconftest(
            """
            import pytest

            @pytest.fixture
            def rowlock_target():
                import shop
                return shop.app
            """
        )
    project.makepyfile(
        """
        import pytest
        import shop
        from rowlock.testing import assert_enqueued, enqueued

        @pytest.mark.parametrize("number", [1, 2])
        def test_signup(rowlock_app, number):
            shop.signup("ada@example.com")
            assert_enqueued(shop.welcome, email="ada@example.com")
            assert 1 == len(enqueued("welcome"))
            assert 1 == rowlock_app.drain()
        """
    )
    run(project).assert_outcomes(passed=2)

    assert [*project.path.glob("*.db*")] == []


def test_a_failure_shows_what_was_enqueued(project):
    """And none of our own lines."""
    project.makeini("[pytest]\nrowlock_app = shop:app")
    project.makepyfile(
        """
        import shop
        from rowlock.testing import assert_enqueued

        def test_signup(rowlock_app):
            shop.signup("ada@example.com")
            assert_enqueued(shop.welcome, email="bob@example.com")
        """
    )
    result = run(project)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            '>       assert_enqueued(shop.welcome, email="bob@example.com")',
            "E *AssertionError: no job like this was enqueued: welcome(email='bob@example.com')",
            "E       1 job was enqueued of this kind, the most similar first:",
            "E         welcome(email='ada@example.com'): ready in 'default'",
            "E           email: expected 'bob@example.com', but found 'ada@example.com'",
        ]
    )
    assert "expect.py" not in result.stdout.str()


def test_mistakes_in_the_settings_are_told(project):
    """An app that is none, a name that is none, a mode that there is not."""
    project.makepyfile(
        """
        import pytest

        @pytest.mark.rowlock(mode="sometimes")
        def test_mode(rowlock_app): ...

        def test_app(rowlock_app): ...
        """
    )
    result = run(project, "-o", "rowlock_app=shop:signup")

    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["*TypeError: shop:signup must be a rowlock.App, not *"])
    result = run(project, "-o", "rowlock_app=shop", "-o", "rowlock_mode=inline")
    result.stdout.fnmatch_lines(["*rowlock_app must be of the form module:app, not 'shop'"])
    result = run(project)
    result.stdout.fnmatch_lines(["*rowlock's mode must be 'manual' or 'inline', not 'sometimes'*"])


def test_the_plugin_loads_nothing_before_it_is_used():
    """It is loaded in every project that has rowlock installed."""
    script = (
        "import sys, pytest; before = set(sys.modules); import rowlock.testing.plugin; "
        "print(sorted(name for name in set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    loaded = ["rowlock", "rowlock.testing", "rowlock.testing.plugin", "rowlock.version"]
    assert str(loaded) == done.stdout.strip()
