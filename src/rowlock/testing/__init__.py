"""What tests of programs that use rowlock, and of rowlock itself, can lean on."""

from rowlock.testing.postgres import ThrowAwayPostgres

__all__ = ["ThrowAwayPostgres"]
