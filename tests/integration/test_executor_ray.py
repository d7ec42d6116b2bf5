"""The executor on a real Ray cluster of several nodes, on this machine and its host device."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness.core.choices import DeviceKind
from harness.core.config import ConfigError, Machine, resolve
from tests.integration.test_survival import complete, lines, make_tree
from tests.support.paths import ROOT, SUPPORT

MACHINE = Machine(device=DeviceKind.HOST, cpu_count=2, memory_bytes=2**33)


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed (the extra ray)")
def test_a_node_killed_in_the_middle_costs_no_record_and_no_verdict(tmp_path: Path) -> None:
    # Slow to import, so that something is being judged when the node goes.
    make_tree(tmp_path, at_import="time.sleep(0.5)")
    script = SUPPORT / "ray_cluster.py"
    # Its sockets lie there, whose paths may have 107 characters.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as held:
        # A node that refuses to answer is asked again soon; how long one may take to answer stays as it is.
        often = {"RAY_health_check_period_ms": "500"}
        # What a killed node leaves behind lies there, too.
        own = {**os.environ, "TMPDIR": held, "RAY_TMPDIR": held, "RAY_USAGE_STATS_ENABLED": "0", **often}
        done = subprocess.run([sys.executable, script, tmp_path], env=own, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout.strip().splitlines()[-1])
    assert len(said["at"]) == 2, "each node has a slot"
    assert len(said["killed"]) == 1
    assert said["processes"][0] > 2, "with the node go its actor and the referee"
    assert said["left"] == [node for node in said["at"] if node not in said["killed"]]
    assert said["notes"] == []
    assert len(set(said["judged_by"])) == 2
    assert len(lines(tmp_path)) == said["records"]
    complete(tmp_path)
    assert said["built_anew"]["notes"] == [], "a record tells of the build that was judged"


def test_what_only_a_cluster_has_implies_it() -> None:
    for options, executor in (
        ({}, "local"),
        ({"ray_address": "auto"}, "ray"),
        ({"accelerator_type": "H200", "device": "cuda"}, "ray"),
        ({"executor": "ray"}, "ray"),
    ):
        held = resolve(machine=MACHINE, run_id="r", options={"paths": ["x"], **options})
        assert held.executor == executor
    with pytest.raises(ConfigError, match="need the executor ray"):
        resolve(machine=MACHINE, run_id="r", options={"paths": ["x"], "executor": "local", "ray_address": "auto"})


@pytest.mark.parametrize("device", [{}, {"device": "host"}])
def test_a_model_of_gpu_is_refused_where_none_is_judged_on(device: dict[str, str]) -> None:
    """It would be ignored, and the run would tell of a GPU's model that it never saw."""
    options = {"paths": ["x"], "accelerator_type": "H200", "ray_address": "auto", **device}
    with pytest.raises(ConfigError, match=r"the device is host .*: pass --device cuda, or omit it"):
        resolve(machine=MACHINE, run_id="r", options=options)


def test_only_one_module_imports_ray() -> None:
    package = ROOT / "harness"
    importing = []
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [item.name for item in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            if any(name.split(".")[0] == "ray" for name in names):
                importing.append(path.relative_to(package).as_posix())
    assert set(importing) == {"runner/executors/ray.py"}
