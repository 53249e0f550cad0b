"""Run Celery's own integration tests of canvases against the shim: `make celery-suite`.

They come with Celery's source package. The imports are changed to the shim's, and the fixtures are
those of `canvas_rig.py`. Waits for what must not happen are shortened from 10 seconds to 1.

    python -m tests.contrib.upstream.canvas [arguments for pytest]
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]
VERSION = "5.7.0"
FILES = (
    "t/__init__.py",
    "t/canvas_helpers.py",
    "t/integration/__init__.py",
    "t/integration/tasks.py",
    "t/integration/test_canvas.py",
)
CHANGES = (
    (r"from celery\.worker\.control import .*", "from .conftest import kept_command"),
    (r"\b(control_command|inspect_command)\(", "kept_command("),
    (r"from celery\.backends\.base import BaseKey", "from .conftest import BaseKey"),
    (r"import StampingVisitor, _chain", "import StampingVisitor, chain as _chain"),
    (r"from redis import StrictRedis\n", "from .conftest import redis_connection\n"),
    (r"return StrictRedis\(.*\)", "return redis_connection()"),
    (r"\bfrom celery\b", "from rowlock.contrib.celery"),
    # Payloads are JSON, so that bytes without an annotation are refused.
    (r"str\(uuid\.uuid4\(\)\)\.encode\(\)", "str(uuid.uuid4())"),
    (r"\bTIMEOUT = 60\b", "TIMEOUT = 30"),
    (r"\btimeout=10\)", "timeout=1)"),
)
CONFIGURATION = "[pytest]\npython_classes = test_*\n"

AGAIN = "it starts a canvas again with the same ids: here an id is of one job"
GENERATOR = (
    "it expects jobs to run before the generator of a header has ended: all is written at once"
)
BACKEND = "it is about the internals of Celery's result backends"
SAVED = "it saves a group by its id: here the ids of its results are to be kept"
BROKER = "it publishes messages to a broker"
RAW = "it uses a class of Celery's that does not fold its steps"
CALLBACKS = "it reads callbacks from a message: here they are jobs of the workflow"
ERRBACK = "test_chord::test_mutable_errback_called_by_chord_from"
DIFFERENCES: dict[str, str] = {
    **{f"test_chord::test_generator[{size}]": GENERATOR for size in range(3, 10)},
    **{
        f"{ERRBACK}_{place}[errback_{style}_style]": AGAIN
        for place in ("chain", "chain_tail", "group")
        for style in ("old", "new")
    },
    "test_chord::test_reapplying_frozen_chord_dispatches_body_again": AGAIN,
    "test_result_set::test_join_native_timeout_zero_gives_up_on_pending_results": BACKEND,
    "test_result_set::test_join_native_timeout_zero_returns_results_that_are_ready": BACKEND,
    "test_chord::test_simple_chord_with_a_delay_in_group_save": BACKEND,
    "test_chord::test_redis_subscribed_channels_leak": BACKEND,
    "test_chord::test_chord_on_error": BACKEND,
    "test_group::test_empty_group_result": SAVED,
    "test_chain::test_chord_header_id_duplicated_on_rabbitmq_msg_duplication[redis-group-ids]": (
        BROKER
    ),
    "test_chain::test_chain_forwards_args_past_leading_empty_steps": RAW,
    "test_stamping_mechanism::test_linking_stamped_sig": CALLBACKS,
    "test_stamping_mechanism::test_err_linking_stamped_sig": CALLBACKS,
}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="rowlock-upstream-") as name:
        place = Path(name)
        unpack(fetch(place), place)
        ended = run(place, sys.argv[1:])
    failed = {test: error for test, error in ended.items() if error}
    unexpected = sorted(failed.keys() - DIFFERENCES.keys())
    mended = sorted(ended.keys() & DIFFERENCES.keys() - failed.keys())
    for test in unexpected:
        say(f"FAILED {test}: {failed[test]:.300}")
    for test in mended:
        say(f"PASSED {test}, which is listed as a difference")
    reasons = Counter(DIFFERENCES[test] for test in failed if test in DIFFERENCES)
    for reason, count in reasons.most_common():
        say(f"{count} differ: {reason}")
    say(f"Celery {VERSION}: {len(ended) - len(failed)} of {len(ended)} tests pass")
    sys.exit(bool(mended or unexpected))


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def fetch(place: Path) -> Path:
    """Download the source package of Celery."""
    options = ["--quiet", "--no-deps"]
    download = ["download", *options, "--no-binary", "celery", "--dest", str(place)]
    subprocess.run([sys.executable, "-m", "pip", *download, f"celery=={VERSION}"], check=True)
    (archive,) = place.glob("*.tar.gz")
    return archive


def unpack(archive: Path, place: Path) -> None:
    """Write the tests with their changes, and the rig as their `conftest.py`."""
    (place / "t" / "integration").mkdir(parents=True)
    with tarfile.open(archive) as files:
        for member in files:
            path = member.name.partition("/")[2]
            if path not in FILES:
                continue
            content = files.extractfile(member)
            assert content is not None
            text = content.read().decode()
            for found, instead in CHANGES:
                text = re.sub(found, instead, text)
            (place / path).write_text(text, "utf-8")
    rig = Path(__file__).with_name("canvas_rig.py").read_text("utf-8")
    (place / "t" / "integration" / "conftest.py").write_text(rig, "utf-8")
    (place / "pytest.ini").write_text(CONFIGURATION, "utf-8")


def run(place: Path, arguments: list[str]) -> dict[str, str]:
    """Run the tests. Return the error of each, or an empty text."""
    report = place / "report.json"
    plugins = ["-p", "no:randomly", "-p", "no:xdist", "--timeout", "120"]
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", *plugins, *arguments]
    done = subprocess.run(
        [*command, "t/integration/test_canvas.py"],
        cwd=place,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (place, ROOT / "src"))),
            "SUITE_DATABASE_URL": f"sqlite:///{place / 'suite.db'}",
            "SUITE_REPORT": str(report),
        },
        capture_output="-v" not in arguments,
        text=True,
        check=False,
    )
    assert report.exists(), (done.stdout, done.stderr)
    ended: dict[str, str] = json.loads(report.read_text("utf-8"))
    return ended


if __name__ == "__main__":
    main()
