"""What a child under a tool keeps of its zygote's environment: all that the tool added, nothing else."""

from __future__ import annotations

import os
from pathlib import Path

from harness.sandbox import SandboxPolicy, wrapped_tool
from harness.sandbox.zygote import Zygote
from tests.support.paths import SUPPORT

TARGETS = SUPPORT / "sandboxed"


def test_what_the_harness_passes_on_is_not_the_tools() -> None:
    held = {
        "PATH": "/usr/bin", "LC_ALL": "C", "CUDA_VISIBLE_DEVICES": "0", "HOME": "/root", "OPENBLAS_NUM_THREADS": "1",
        "LD_PRELOAD": "/opt/injection.so", "NV_COMPUTE_PROFILER_DIR": "/opt/x", "CUDA_INJECTION64_PATH": "/opt/y",
    }  # fmt: skip
    assert set(wrapped_tool.variables(held)) == {"LD_PRELOAD", "NV_COMPUTE_PROFILER_DIR", "CUDA_INJECTION64_PATH"}


def test_a_child_has_the_variables_of_the_tool_around_its_zygote(tmp_path: Path) -> None:
    os.environ["SECRET_TOKEN"] = "not to be seen"
    wrapper = ("env", "NEW_NAME_OF_A_TOOL=1")
    env = {"PYTHONPATH": os.pathsep.join([str(TARGETS), os.environ.get("PYTHONPATH", "")])}
    try:
        with Zygote(
            preload=("honest",), env=env, log_path=tmp_path / "zygote", wrapper=wrapper, enclosed=True
        ) as zygote:
            seen = {}
            for under_tool in (True, False):
                policy = SandboxPolicy(readable=(TARGETS,), under_tool=under_tool)
                with zygote.spawn("honest:look", policy, tmp_path / "log") as child:
                    seen[under_tool] = child.channel.receive(60.0).message["environment"]
    finally:
        del os.environ["SECRET_TOKEN"]
    assert seen[True]["NEW_NAME_OF_A_TOOL"] == "1"
    assert "NEW_NAME_OF_A_TOOL" not in seen[False]
    assert not {"SECRET_TOKEN"} & (set(seen[True]) | set(seen[False]))
    assert seen[True]["HOME"] == seen[False]["HOME"] != os.path.expanduser("~")
