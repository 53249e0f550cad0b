"""Chaos: real workers and producers, everything that may befall them, and a judge of what was left.

`run` arranges it; `nemesis` strikes; every process says in a `journal` what it does, and `witness`
notes in the database what was committed; `judge` compares the two, and believes nobody else.
"""
