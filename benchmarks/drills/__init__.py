"""Drills: real workers, and what may befall them. Long in `benchmarks.kills`, short in the tests.

A drill arranges its own trouble on a `Scene`, and returns what it found as a record; it judges
nothing. The tests do, and the benchmark prints.
"""
