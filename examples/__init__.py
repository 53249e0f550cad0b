"""Apps to try rowlock with."""
