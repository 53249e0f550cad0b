"""Chaos: real workers and producers under every fault we know, and a judge of the result.

`run` drives it, and `nemesis` injects the faults. Every process records in a `journal` what it
does, and `witness` records in the database what was committed. `judge` trusts only these two, and
compares them.
"""
