"""`python -m rowlock.cli` is `rowlock`."""

from rowlock.cli import main

main(prog_name="rowlock")
