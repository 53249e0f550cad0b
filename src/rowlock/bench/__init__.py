"""Bench: measures a database with jobs of its own, for `rowlock bench`.

It works in a `Scratch` and starts a worker there. It prints nothing.
"""
