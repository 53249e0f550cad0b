"""Bench: measures a database with jobs of its own, as `rowlock bench` shows it.

It works in a `Scratch` and starts a worker there. It prints nothing.
"""
