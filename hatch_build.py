"""Puts the built dashboard into the wheel. Without Node the wheel is made all the same, without it:
the server then says how to build it.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class DashboardHook(BuildHookInterface):  # type: ignore[type-arg]
    """Builds it, unless the files are there and of these sources."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        script = Path(self.root) / "dashboard" / "build.py"
        # An editable install serves what make builds.
        if version == "editable" or not script.is_file():
            return
        if runpy.run_path(str(script))["main"]() != 0:
            self.app.display_warning("the wheel is made without the dashboard")
