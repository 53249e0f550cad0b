"""The soak: a steady load for half an hour, a transaction held open in its middle, and what grows.

`python -m benchmarks.soak` runs it; `verdict.py` says what counts as flat.
"""
