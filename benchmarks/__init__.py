"""Benchmarks. `python -m benchmarks` runs the engine's; see the modules for the others."""
