"""The examples of `deploy/`: they are well formed, and every command in them is one of ours."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import click
import pytest
import yaml

from rowlock import cli
from tests.house.source import ROOT

DEPLOY = ROOT / "deploy"
# Longer than the grace of the worker, by as much as it takes to give back what is left.
STOP_SECONDS = 10


def unit() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((DEPLOY / "rowlock-worker.service").read_text("utf-8"))
    assert set(parser.sections()) == {"Unit", "Service", "Install"}
    return parser["Service"]


def containers() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Of Kubernetes: each with the pod that it is in."""
    for document in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text("utf-8")):
        assert document["apiVersion"] and document["metadata"]["name"]
        if document["kind"] in {"Deployment", "Job"}:
            pod = document["spec"]["template"]["spec"]
            yield from ((container, pod) for container in pod["containers"])


def services() -> dict[str, dict[str, Any]]:
    """Of the compose file, ours."""
    document = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    return {name: each for name, each in document["services"].items() if "build" in each}


def dockerfile() -> dict[str, str]:
    lines = (DEPLOY / "Dockerfile").read_text("utf-8").splitlines()
    return dict(re.fullmatch(r"(\w+) (.*)", line).groups() for line in lines if line[:1].isupper())  # type: ignore[union-attr]


def commands() -> Iterator[tuple[str, list[str]]]:
    """Everything that is run, as words behind `rowlock`."""
    yield "systemd", shlex.split(unit()["ExecStart"])[1:]
    entry = json.loads(dockerfile()["ENTRYPOINT"])
    assert entry[0] == "rowlock"
    yield "Dockerfile", entry[1:] + json.loads(dockerfile()["CMD"])
    for name, service in services().items():
        yield f"compose, {name}", entry[1:] + service["command"]
    for container, _ in containers():
        yield f"kubernetes, {container['name']}", entry[1:] + container["args"]


@pytest.mark.parametrize(("place", "words"), list(commands()), ids=[each for each, _ in commands()])
def test_every_command_is_one_of_ours(place: str, words: list[str]):
    """With options that it has."""
    top = cli.main.make_context("rowlock", list(words), resilient_parsing=False)
    name, command, rest = cli.main.resolve_command(top, [*top._protected_args, *top.args])

    assert command is not None, place
    assert isinstance(command.make_context(name, rest, parent=top), click.Context)


def grace_of(words: list[str]) -> int:
    return int(words[words.index("--grace") + 1])


def test_workers_are_given_longer_than_their_grace():
    """Killed earlier, their jobs would wait for leases to expire."""
    assert int(unit()["TimeoutStopSec"]) >= grace_of(unit()["ExecStart"].split()) + STOP_SECONDS
    worker = services()["worker"]
    assert int(worker["stop_grace_period"].removesuffix("s")) >= (
        grace_of(worker["command"]) + STOP_SECONDS
    )
    for container, pod in containers():
        if "--grace" in container["args"]:
            seconds = pod["terminationGracePeriodSeconds"]
            assert seconds >= grace_of(container["args"]) + STOP_SECONDS


def test_the_supervisor_alone_gets_the_signal():
    """systemd would end all processes at once, and Docker tell a shell that tells nobody."""
    assert unit()["KillMode"] == "mixed"
    assert dockerfile()["ENTRYPOINT"].startswith("[")
