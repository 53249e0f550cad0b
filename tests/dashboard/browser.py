"""Where Chromium is, and how it is started."""

from __future__ import annotations

import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LAUNCH = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


def find_chromium() -> str:
    """Debian's Chromium, by any of its names."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    assert found, f"this needs Chromium, and there is none: {', '.join(NAMES)}"
    return found
