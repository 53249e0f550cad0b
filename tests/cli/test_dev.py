"""`rowlock dev postgres` runs a server until it is told to end."""

from __future__ import annotations

import signal
import subprocess
import sys

import psycopg
import pytest
from click.testing import CliRunner

from rowlock.cli import main

RUN = [sys.executable, "-c", "from rowlock.cli import main; main()", "dev", "postgres"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_runs_until_signalled(number):
    """It prints its URL, serves there, and on a signal ends with 0 and takes the server along."""
    with subprocess.Popen(RUN, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with psycopg.connect(url) as connection:
            connection.execute("SELECT 1")
        process.send_signal(number)
        rest = process.stdout.read()

    assert process.returncode == 0
    assert f"export ROWLOCK_DATABASE_URL={url}" in rest
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)


def test_unknown_version_fails():
    """A version that is not there is a failure with a reason, not a traceback."""
    result = CliRunner().invoke(main, ["dev", "postgres", "--version", "9"])

    assert result.exit_code == 1
    assert "no PostgreSQL 9" in result.stderr
