"""Seeds that ever failed, with what they showed: they are run before all others."""

from __future__ import annotations

# A seed shows the same only for as long as its plan is drawn the same way; each of these bugs has
# a test of its own beside the code that had it.
FAILED: dict[int, str] = {
    386: "a job that waited to be run alone was started after its worker knew that it was lost",
    2: "the same, when plans were drawn otherwise",
    12: "the same, of a job that had succeeded elsewhere meanwhile",
    10: "a run that was told to end before its first line was never known to have ended",
    5: "a success was dropped when a cancel came while its last lines were being written",
}


def failed_before() -> list[int]:
    return list(FAILED)
