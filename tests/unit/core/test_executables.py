"""Which programs this machine is said to have, and what they are heard to say."""

from __future__ import annotations

import errno
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.core import executables
from harness.core.executables import git_state


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_the_revision_is_the_harness_own(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    package = tmp_path / "site-packages" / "harness"
    package.mkdir(parents=True)
    (package / "__main__.py").write_text("x = 1\n")
    (tmp_path / "other.py").write_text("")
    git(tmp_path, "add", "other.py")
    git(tmp_path, "commit", "-qm", "theirs")
    revision, dirty, reason = git_state(package)
    assert (revision, dirty) == (None, None)
    assert reason is not None
    assert reason.startswith("not run from a git checkout of the harness (")
    assert "did not match any file" in reason
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "ours")
    revision, dirty, reason = git_state(package)
    assert revision is not None
    assert len(revision) == 40
    assert (dirty, reason) == (False, None)
    (package / "__main__.py").write_text("x = 2\n")
    assert git_state(package)[1] is True
    (tmp_path / ".git" / "index").write_bytes(b"x" * 64)
    revision, dirty, reason = git_state(package)
    assert (revision, dirty) == (None, None)
    assert "bad signature" in (reason or "")
    (tmp_path / ".git").rename(tmp_path / "moved")
    (tmp_path / ".git").write_text(f"gitdir: {tmp_path}/nowhere\n")
    reason = git_state(package)[2]
    assert reason == "not run from a git checkout of the harness (fatal: not a git repository: ...)"


def test_a_program_that_was_killed_or_could_not_be_started_for_the_moment_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, tried = tmp_path / "program", tmp_path / "tried"
    program.write_text(f"#!/bin/sh\nif [ ! -e {tried} ]; then touch {tried}; kill -9 $$; fi\necho it\n")
    program.chmod(0o755)
    assert executables.output_of([str(program)]) == "it\n"
    real, failures = subprocess.run, [errno.EAGAIN, errno.ENOMEM]

    def run(*arguments: Any, **options: Any) -> Any:
        if failures:
            raise OSError(failures.pop(), "short of something")
        return real(*arguments, **options)

    monkeypatch.setattr(subprocess, "run", run)
    assert executables.output_of([str(program)]) == "it\n"
    failures = [errno.ENOMEM] * 3
    assert executables.output_of([str(program)]) is None
    failures = [errno.ENOENT]
    assert executables.output_of([str(program)]) is None
    assert not failures
    monkeypatch.setattr(executables, "_COMMAND_TIMEOUT_S", 0.5)
    tried.unlink()
    program.write_text(f"#!/bin/sh\nif [ ! -e {tried} ]; then touch {tried}; exec sleep 60; fi\necho it\n")
    assert executables.output_of([str(program)]) == "it\n"
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    assert executables.output_of([str(program)]) is None


def test_nvcc_is_looked_for_where_torch_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, path = tmp_path / "home", tmp_path / "path"
    for folder, version in ((home / "bin", "12.4.131"), (path, "11.8.89")):
        folder.mkdir(parents=True)
        (folder / "nvcc").write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release x, V{version}'\n")
        (folder / "nvcc").chmod(0o755)
    monkeypatch.setenv("PATH", str(path), prepend=":")
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setenv("CUDA_HOME", str(home))
    assert executables.nvcc_version(executables.find_nvcc()) == "12.4.131"
    monkeypatch.delenv("CUDA_HOME")
    assert executables.nvcc_version(executables.find_nvcc()) == "11.8.89"
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "nowhere"))
    assert executables.find_nvcc() is None
    assert executables.nvcc_version(None) is None


def test_the_compiler_behind_ccache_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "my-g++"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    for named in (str(compiler), f"ccache {compiler}", f"/usr/bin/ccache  {compiler}"):
        monkeypatch.setenv("CXX", named)
        assert executables.find_gxx() == compiler
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert executables.find_gxx() is None
