"""The processes of one build: what of their time counts against the limit on compiling."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.toolchain import BuilderZygotes, ExtensionSpec
from harness.toolchain.build_processes import Abandon, BuildAttempt
from harness.toolchain.toolchain import Command, Plan

START_S = 4.0
LIMIT_S = 3.0
"""Of compiling a line of C, which takes hundredths of a second."""

LACKS = 'namespace torch { void gone(); } extern "C" void *PyInit_tiny() { torch::gone(); return nullptr; }'
WHOLE = LACKS.replace("void gone();", "void gone() {}")


def compiling(text: str) -> Command:
    return ("sh", "-c", f"printf %s '{text}' > a.cpp && g++ -shared -fPIC a.cpp -o tiny.so")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    made = tmp_path / "build"
    made.mkdir()
    return made


def test_waiting_for_what_processes_are_forked_from_is_none_of_the_compilers_time(folder: Path, tmp_path: Path) -> None:
    """Not before the first try, nor between loading what came of it and the second."""
    (tmp_path / "slow_to_import.py").write_text(f"import time\ntime.sleep({START_S})\n")
    with BuilderZygotes(preload=["slow_to_import"], env={"PYTHONPATH": str(tmp_path)}) as zygotes:
        ended = BuildAttempt(
            zygotes=zygotes,
            sandbox="auto",
            timeout_s=LIMIT_S,
            spec=ExtensionSpec(name="tiny", cpp_sources=(WHOLE,)),
            plan=Plan(commands=(compiling(LACKS),), second_try=(compiling(WHOLE),), product="tiny.so"),
            folder=folder,
            log_path=tmp_path / "log",
            abandon=Abandon(),
        ).run()
    assert (ended.late, ended.exit_code, ended.load_error, ended.second_try) == (False, 0, None, True)


def test_a_ccache_before_the_compilers_is_switched_off(folder: Path, tmp_path: Path) -> None:
    """Its folder would be the build's own, and empty."""
    asks: Command = ("sh", "-c", 'echo "disabled: $CCACHE_DISABLE"; exit 1')
    with BuilderZygotes() as zygotes:
        BuildAttempt(
            zygotes=zygotes,
            sandbox="auto",
            timeout_s=LIMIT_S,
            spec=ExtensionSpec(name="tiny", cpp_sources=(WHOLE,)),
            plan=Plan(commands=(asks,), product="tiny.so"),
            folder=folder,
            log_path=tmp_path / "log",
            abandon=Abandon(),
        ).run()
    assert "disabled: 1" in (tmp_path / "log").read_text()


def test_both_tries_share_one_limit(folder: Path, tmp_path: Path) -> None:
    ends: Command = ("sleep", "600")
    with BuilderZygotes() as zygotes:
        ended = BuildAttempt(
            zygotes=zygotes,
            sandbox="auto",
            timeout_s=LIMIT_S,
            spec=ExtensionSpec(name="tiny", cpp_sources=(WHOLE,)),
            plan=Plan(commands=(compiling(LACKS),), second_try=(ends,), product="tiny.so"),
            folder=folder,
            log_path=tmp_path / "log",
            abandon=Abandon(),
        ).run()
    assert (ended.late, ended.exit_code, ended.second_try) == (True, None, True)
