"""Migrations of the Django app: they run rowlock's own."""
