"""SQLite: its engine and the engine's parts."""
