"""Write src/schema.ts, the types of the API, from the OpenAPI document: `make types`."""

from __future__ import annotations

import json
import runpy
import sys
import tempfile
from pathlib import Path

from rowlock.server.openapi import document
from rowlock.server.routes import ROUTES

HERE = Path(__file__).resolve().parent
TYPES = HERE / "src" / "schema.ts"


def write(target: Path) -> None:
    """Write the types of what this checkout serves."""
    build = runpy.run_path(str(HERE / "build.py"))
    build["install"]()
    with tempfile.TemporaryDirectory() as directory:
        spec = Path(directory) / "openapi.json"
        spec.write_text(json.dumps(document(ROUTES)), "utf-8")
        build["run_npm"]("exec", "--", "openapi-typescript", str(spec), "--output", str(target))


if __name__ == "__main__":
    sys.exit(write(TYPES))
