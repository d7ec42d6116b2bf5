"""constraints.txt pins what pyproject.toml asks for, and all that this needs in turn."""

from __future__ import annotations

import importlib.metadata
import tomllib
from collections.abc import Iterable

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support.paths import ROOT

BESIDE_TORCH = ("cuda-", "nvidia-", "triton")
"""Parts of CUDA that a build of torch names itself, each in one version."""


def pins() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def asked() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    # `make mutants` alone installs what is not in dev.
    return [Requirement(line) for line in (*project["dependencies"], *extras["dev"], *extras["ray"], *extras["sign"])]


def test_each_dependency_has_one_exact_version_that_it_accepts() -> None:
    known = pins()
    for requirement in asked():
        version = known[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement}: {version}"


def test_what_the_dependencies_need_is_pinned_too() -> None:
    known, seen = pins(), set()
    waiting = [(requirement, requirement.extras) for requirement in asked()]
    while waiting:
        requirement, extras = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in seen or (requirement.marker and not applies(requirement, extras)):
            continue
        seen.add(name)
        if name.startswith(BESIDE_TORCH) and name != "nvidia-ml-py":
            continue
        try:
            needed = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:  # not for this Python, or left out of this environment
            continue
        assert name in known or name == "setuptools", f"{name} has no version in constraints.txt"
        waiting += [(Requirement(line), requirement.extras) for line in needed]
    assert len(seen) > 20


def applies(requirement: Requirement, extras: Iterable[str]) -> bool:
    assert requirement.marker
    return any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras))
