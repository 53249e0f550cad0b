"""The examples of `deploy/`: well formed, hardened, and every command in them is one of ours.

`make lint-deploy` runs the linters for such files, which know more rules. They bring a hundred
packages along, so the facts that matter most are checked here as well.
"""

from __future__ import annotations

import configparser
import fnmatch
import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import click
import pytest
import yaml

from rowlock import cli, config
from tests.house.source import ROOT

DEPLOY = ROOT / "deploy"
UNITS = sorted(path.name for path in DEPLOY.glob("*.service"))
# Longer than the grace of a process, by as much as it takes to give back what is left.
STOP_SECONDS = 10
# Of node_exporter and postgres_exporter, which often run on the same machine.
TAKEN_PORTS = {9100, 9187}
DOCUMENTS = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text("utf-8")))
# What a project's directory holds beside its code, and what nobody may find in an image.
PRIVATE = [
    ".git/config",
    ".env",
    ".env.production",
    "rowlock.env",
    "postgres.secret",
    "jobs.db",
    "jobs.db-wal",
    ".venv/bin/python",
    "id_ed25519",
    "deploy.key",
    "notes.txt",
    "shop/.env",
    "shop/local.env",
    "shop/jobs.db",
    "shop/jobs.db-wal",
    "shop/jobs.db-rowlock",
    "shop/postgres.secret",
    "shop/server.pem",
    "shop/server.key",
    "shop/__pycache__/jobs.cpython-313.pyc",
]


def unit(name: str) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((DEPLOY / name).read_text("utf-8"))
    assert set(parser.sections()) == {"Unit", "Service", "Install"}
    return parser["Service"]


def of_kind(*kinds: str) -> list[dict[str, Any]]:
    """Of Kubernetes."""
    return [document for document in DOCUMENTS if document["kind"] in kinds]


def containers() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Of Kubernetes: each with the pod that it is in."""
    for document in of_kind("Deployment", "Job"):
        pod = document["spec"]["template"]["spec"]
        yield from ((container, pod) for container in pod["containers"])


def compose() -> dict[str, dict[str, Any]]:
    services: dict[str, dict[str, Any]] = yaml.safe_load(
        (DEPLOY / "compose.yaml").read_text("utf-8")
    )["services"]
    return services


def services() -> dict[str, dict[str, Any]]:
    """Of the compose file, ours."""
    return {name: each for name, each in compose().items() if "build" in each}


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile, with lines that are continued as one."""
    text = (DEPLOY / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line[:1].isupper()]
    return [(word, " ".join(rest.split())) for word, rest in lines]


def last(word: str) -> str:
    """The value of an instruction that the image ends up with."""
    return [value for each, value in instructions() if each == word][-1]


def commands() -> Iterator[tuple[str, list[str]]]:
    """Everything that is run, as words behind `rowlock`."""
    for name in UNITS:
        yield name, shlex.split(unit(name)["ExecStart"])[1:]
    entry = json.loads(last("ENTRYPOINT"))
    assert entry[0] == "rowlock"
    yield "Dockerfile", entry[1:] + json.loads(last("CMD"))
    for name, service in services().items():
        yield f"compose, {name}", entry[1:] + service["command"]
    for container, _ in containers():
        yield f"kubernetes, {container['name']}", entry[1:] + container["args"]


def value_of(words: list[str], option: str) -> str | None:
    return words[words.index(option) + 1] if option in words else None


def stop_seconds_of(words: list[str]) -> float:
    """How long the process of a command takes at most to stop by itself."""
    if "worker" in words:
        return float(value_of(words, "--grace") or config.WORKER_GRACE_SECONDS_DEFAULT)
    return config.HTTP_STOP_SECONDS if "serve" in words else 0.0


@pytest.mark.parametrize(("place", "words"), list(commands()), ids=[each for each, _ in commands()])
def test_every_command_is_one_of_ours(place: str, words: list[str]):
    """With options that it has."""
    top = cli.main.make_context("rowlock", list(words), resilient_parsing=False)
    name, command, rest = cli.main.resolve_command(top, [*top._protected_args, *top.args])

    assert command is not None, place
    assert isinstance(command.make_context(name, rest, parent=top), click.Context)


def test_processes_are_given_longer_than_they_take_to_stop():
    """Killed earlier, a worker's jobs would wait for leases to expire, and requests be cut off."""
    for name in UNITS:
        words = unit(name)["ExecStart"].split()
        assert int(unit(name)["TimeoutStopSec"]) >= stop_seconds_of(words) + STOP_SECONDS
    for service in services().values():
        if seconds := stop_seconds_of(service["command"]):
            given = int(service["stop_grace_period"].removesuffix("s"))
            assert given >= seconds + STOP_SECONDS
    for container, pod in containers():
        if seconds := stop_seconds_of(container["args"]):
            assert pod["terminationGracePeriodSeconds"] >= seconds + STOP_SECONDS


def test_the_supervisor_alone_gets_the_signal():
    """systemd would end all processes at once, and Docker signal a shell that passes nothing on."""
    assert unit("rowlock-worker.service")["KillMode"] == "mixed"
    assert last("ENTRYPOINT").startswith("[")


def test_no_port_is_one_of_a_common_exporter():
    """A worker that can't listen on its metrics port does not start."""
    ports = {
        int(value)
        for _, words in commands()
        for option in ("--metrics-port", "--port")
        if (value := value_of(words, option))
    }

    assert len(ports) == 2
    assert not ports & TAKEN_PORTS


def is_left_out(path: str) -> bool:
    """Whether `.dockerignore` keeps a file out of the build. The last line that matches decides."""
    parts = path.split("/")
    parents = ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]
    left_out = False
    for line in (DEPLOY / ".dockerignore").read_text("utf-8").splitlines():
        pattern = line.removeprefix("!").rstrip("/")
        if pattern and not pattern.startswith("#"):
            regex = re.compile(fnmatch.translate(pattern).replace(".*", "[^/]*"))
            if pattern.startswith("**/"):
                regex = re.compile("(.*/)?" + fnmatch.translate(pattern[3:]).replace(".*", "[^/]*"))
            if any(regex.match(parent) for parent in parents):
                left_out = not line.startswith("!")
    return left_out


def test_the_image_holds_the_code_and_nothing_private():
    """A secret in a layer stays in it, even if a later layer removes the file."""
    copied = [value for word, value in instructions() if word in {"COPY", "ADD"}]

    assert not any(is_left_out(path) for path in ("requirements.txt", "shop/jobs.py"))
    assert [path for path in PRIVATE if not is_left_out(path)] == []
    assert not any(re.search(r"(^|\s)\.(\s|$)", value.rsplit(" ", 1)[0]) for value in copied)
    assert not [word for word, _ in instructions() if word == "ARG"]
    assert not re.search(r"(?i)password|token|secret=", last("ENV"))


def test_the_image_runs_as_a_number():
    """A kubelet can't tell that a name is not root, and refuses to start it."""
    assert int(last("USER").split(":")[0]) >= 10_000


@pytest.mark.parametrize(("container", "pod"), list(containers()))
def test_a_container_can_only_do_what_it_needs(container: dict[str, Any], pod: dict[str, Any]):
    """The restricted Pod Security Standard, with a read-only root."""
    context = container["securityContext"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}

    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert str(pod["securityContext"]["runAsUser"]) == last("USER").split(":")[0]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert context == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert mounts == {"tmp": "/tmp"}
    assert [(each["name"], list(each)[1]) for each in pod["volumes"]] == [("tmp", "emptyDir")]
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert container["resources"]["limits"].keys() == {"cpu", "memory"}


def test_a_kubelet_reaches_the_probes():
    """On the address of the pod: loopback is closed to it, and the pod would never be ready."""
    for deployment in of_kind("Deployment"):
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
        option = "--metrics-" if "worker" in container["args"] else "--"
        probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness")]
        probes.append(container["readinessProbe"]["httpGet"])

        assert value_of(container["args"], f"{option}host") == "0.0.0.0"
        assert [probe["path"] for probe in probes] == ["/healthz", "/healthz", "/readyz"]
        for probe in probes:
            assert ports[probe["port"]] == value_of(container["args"], f"{option}port")


def test_every_pod_has_a_network_policy():
    """For both directions, and only the ports that its command listens on are open."""
    policies = {
        policy["spec"]["podSelector"]["matchLabels"]["app"]: policy["spec"]
        for policy in of_kind("NetworkPolicy")
    }

    for workload in of_kind("Deployment", "Job"):
        template = workload["spec"]["template"]
        policy = policies[template["metadata"]["labels"]["app"]]
        (container,) = template["spec"]["containers"]
        opened = {port["port"] for rule in policy.get("ingress", []) for port in rule["ports"]}
        assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
        assert opened == {port["name"] for port in container.get("ports", [])}
        assert all(rule["from"] for rule in policy.get("ingress", []))


def test_services_of_compose_are_confined_and_looked_after():
    """Read-only, without capabilities, limited, and with a health check that is not the image's."""
    for name, service in compose().items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["read_only"] is True, name
        assert {"mem_limit", "cpus", "pids_limit"} <= service.keys(), name
        assert "healthcheck" in service, name
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), name
    for service in services().values():
        assert "cap_add" not in service


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_is_confined(name: str):
    """`systemd-analyze security --offline=true` says how far, in a number."""
    service = unit(name)

    assert service["User"] != "root"
    for option in ("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectHome"):
        assert service[option] == "true"
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""
    assert service["SystemCallArchitectures"] == "native"
    assert service["SystemCallErrorNumber"] == "EPERM"


def test_a_worker_outlives_a_child_that_ran_out_of_memory():
    """systemd would stop the whole unit, and all other children's jobs with it."""
    assert unit("rowlock-worker.service")["OOMPolicy"] == "continue"
