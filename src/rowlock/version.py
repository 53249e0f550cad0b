"""The version. The build, the command line and the HTTP API read it from here."""

__version__ = "0.1.0"
