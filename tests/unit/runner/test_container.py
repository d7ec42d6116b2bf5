"""What the doctor says of containers: made ones, stand-ins without a container, and real ones if Docker is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.core.environment import Environment, collect
from harness.runner.container import Surroundings, withheld
from harness.runner.doctor import CheckState, MachineCheck, diagnose
from harness.sandbox import SandboxReport, probe
from harness.sandbox.seccomp import ABSENT, DENIED
from tests.support.paths import ROOT
from tests.unit.runner.test_doctor import H200

MACHINE = probe()
FULL = SandboxReport(strength="full", mechanisms=("user_namespace", "seccomp"))
REFUSED = "not root, and this machine does not allow user namespaces ([Errno 1] unshare: Operation not permitted)"
NO_NAMESPACES = SandboxReport(
    strength="partial",
    mechanisms=("seccomp", "landlock"),
    missing=dict.fromkeys(("mount_namespace", "pid_namespace", "ipc_namespace", "user_namespace"), REFUSED),
)
NO_MOUNTS = SandboxReport(
    strength="partial", mechanisms=("pid_namespace",), missing={"mount_namespace": "[Errno 13] Permission denied"}
)
NO_PROC = SandboxReport(
    strength="partial", mechanisms=("mount_namespace",), missing={"private_proc": "[Errno 1] mount /new/proc"}
)
DOCKER = Surroundings(container="docker", seccomp=True, covered_proc=True, shm_bytes=64 * 2**20)


def flags(around: Surroundings, sandbox: SandboxReport) -> list[str]:
    return [cause.remedy for cause in withheld(around, sandbox)]


def test_the_defaults_of_docker_take_namespaces_and_proc_away() -> None:
    assert flags(DOCKER, NO_NAMESPACES) == [
        "--security-opt seccomp=seccomp.json",
        "--security-opt systempaths=unconfined",
        "if you can't, add at least --shm-size 2g",
    ]


@pytest.mark.parametrize(
    ("around", "sandbox", "remedy"),
    [
        (replace(DOCKER, container="podman"), NO_PROC, "--security-opt unmask=ALL"),
        (replace(DOCKER, seccomp=False), NO_PROC, "--security-opt systempaths=unconfined"),
        (
            replace(DOCKER, covered_proc=False, shm_bytes=2**32, apparmor="docker-default (enforce)"),
            NO_MOUNTS,
            "--security-opt apparmor=unconfined",
        ),
        (
            replace(DOCKER, seccomp=False, covered_proc=False, shm_bytes=None, root_lacks=("CAP_CHOWN",)),
            NO_NAMESPACES,
            "--user 1000:1000",
        ),
        (
            Surroundings(container=None, max_user_namespaces=0),
            NO_NAMESPACES,
            "sysctl user.max_user_namespaces=10000 on the machine",
        ),
        (
            Surroundings(container=None, apparmor_restricts=True),
            NO_MOUNTS,
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0 on the machine",
        ),
    ],
)
def test_each_thing_that_is_withheld_has_its_flag(around: Surroundings, sandbox: SandboxReport, remedy: str) -> None:
    assert flags(around, sandbox) == [remedy]


def test_nothing_is_asked_for_that_the_sandbox_does_not_lack() -> None:
    assert flags(replace(DOCKER, apparmor="x", root_lacks=("CAP_CHOWN",), max_user_namespaces=0), FULL) == []
    assert flags(Surroundings(container=None, seccomp=True, covered_proc=True), NO_PROC) == []


def checks(around: Surroundings, environment: Environment, sandbox: SandboxReport = FULL) -> dict[str, MachineCheck]:
    found = diagnose(
        environment,
        sandbox,
        ninja="1.13",
        sanitizer="2025.3",
        ncu="2025.3",
        cache_dir=Path("c"),
        cache_fault=None,
        around=around,
    )
    return {check.name: check for check in found.checks}


def test_a_container_has_a_line_of_its_own_with_one_command() -> None:
    check = checks(DOCKER, collect(), NO_NAMESPACES)["container"]
    assert check.state is CheckState.limited
    assert check.remedy == (
        "start the container with --security-opt seccomp=seccomp.json --security-opt systempaths=unconfined; "
        "if you can't, add at least --shm-size 2g"
    )
    assert checks(DOCKER, collect())["container"].state is CheckState.ok
    watched = replace(FULL, missing={"memory_cgroup": "not delegated"})
    assert "no memory cgroup" in checks(DOCKER, collect(), watched)["container"].found
    assert "container" not in checks(Surroundings(container=None), collect())


def test_reasons_that_several_mechanisms_share_are_told_once() -> None:
    assert NO_NAMESPACES.weakness().startswith(
        "mount_namespace, pid_namespace, ipc_namespace, user_namespace: not root"
    )


def test_libraries_of_the_gpu_that_a_container_lacks() -> None:
    none = replace(collect(), gpus=(), absent={"gpus": "NVML: no library"})
    one = replace(none, gpus=(H200,), driver="580", driver_cuda="13.0", torch_cuda="13.0", torch="2.13.0")
    assert "--gpus all" in str(checks(DOCKER, none)["GPU"].remedy)
    assert "compute,utility" in str(checks(replace(DOCKER, gpu_nodes=True), none)["GPU"].remedy)
    assert "--gpus" not in str(checks(Surroundings(container=None), none)["GPU"].remedy)
    lacking = checks(replace(DOCKER, gpu_nodes=True), one)
    assert "compute,utility" in str(lacking["libcuda"].remedy)
    assert lacking["CUPTI"].state is CheckState.missing
    assert not {"libcuda", "CUPTI"} & set(checks(replace(DOCKER, libcuda=True, libcupti=True), one))


def test_the_filter_of_a_container_refuses_nothing_that_makes_sandboxes() -> None:
    """And nothing else than what the sandbox's own filter refuses."""
    profile = json.loads((ROOT / "seccomp.json").read_text(encoding="utf-8"))
    refused = {name for rule in profile["syscalls"] for name in rule["names"]}
    assert {rule["action"] for rule in profile["syscalls"]} == {"SCMP_ACT_ERRNO"}
    assert refused <= set(DENIED) | set(ABSENT)
    assert not refused & {"mount", "umount2", "pivot_root", "mount_setattr", "unshare", "setns", "sethostname"}


def doctor(prefix: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The checks of this machine's doctor, started behind `prefix`."""
    with tempfile.TemporaryDirectory() as cache:
        Path(cache).chmod(0o777)
        command = [*prefix, sys.executable, "-m", "harness", "doctor", "--json", "--cache", cache]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "container": "made"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout, done.stderr
    return {check["name"]: check for check in json.loads(done.stdout)["checks"]}


AS_NOBODY = ["sh", str(ROOT / "tests" / "support" / "sandboxed" / "as_nobody.sh"), sys.base_prefix]

as_root = pytest.mark.skipif(
    os.geteuid() != 0 or MACHINE.strength != "full", reason="makes stand-ins for containers: root and namespaces"
)


@as_root
def test_a_covered_proc_is_told() -> None:
    covering = 'mount -t tmpfs none /proc/sys && exec "$@"'
    seen = doctor(["unshare", "-m", "sh", "-c", covering, "sh", *AS_NOBODY])
    assert "private_proc" in seen["sandbox"]["remedy"]
    assert "parts of /proc are covered" in seen["container"]["found"]
    assert seen["container"]["remedy"] == "start the container with --security-opt systempaths=unconfined"


@as_root
def test_a_filter_of_system_calls_is_told() -> None:
    filtering = (
        "import os, sys; from harness.sandbox import seccomp, syscalls;"
        "syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1); seccomp.install(network=True);"
        "os.execvp(sys.argv[1], sys.argv[1:])"
    )
    seen = doctor(["unshare", "-m", *AS_NOBODY, sys.executable, "-c", filtering])
    assert seen["sandbox"]["state"] == "limited"
    assert "a seccomp filter refuses user namespaces" in seen["container"]["found"]
    assert "--security-opt seccomp=seccomp.json" in seen["container"]["remedy"]


@as_root
def test_a_root_without_capabilities_is_told() -> None:
    seen = doctor(["setpriv", "--bounding-set=-all", "--inh-caps=-all"])
    assert "root lacks CAP_CHOWN" in seen["container"]["found"]
    assert "--user 1000:1000" in seen["container"]["remedy"]


@as_root
def test_a_machine_without_user_namespaces_is_told() -> None:
    limiting = 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all "$@"'
    seen = doctor(["unshare", "-U", "-r", "sh", "-c", limiting, "sh"])
    assert "the machine allows no user namespaces" in seen["container"]["found"]
    assert "sysctl user.max_user_namespaces" in seen["container"]["remedy"]
