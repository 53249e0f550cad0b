"""PostgreSQL: its engine, and what the engine is made of."""
