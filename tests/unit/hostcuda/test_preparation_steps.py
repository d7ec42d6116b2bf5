"""The progress of the host device's preparation. The compilers are replaced: they take minutes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.core.preparing import Preparing
from harness.hostcuda.translate import preparation
from harness.hostcuda.translate.kinds import Precompiled, header_name
from harness.hostcuda.translate.preparation import PreparedHeaders


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilers that only leave their results."""

    def precompile(crew: object, prepared: PreparedHeaders, kind: Precompiled, *, checked: bool) -> None:
        place = prepared.headers / header_name(kind, checked=checked)
        place.mkdir(parents=True, exist_ok=True)
        (place / "prelude.h.gch").touch()

    def link(crew: object, prepared: PreparedHeaders, objects: Path) -> None:
        prepared.bridge.touch()

    monkeypatch.setattr(preparation, "_precompile", precompile)
    monkeypatch.setattr(preparation, "_run", lambda crew, command: None)
    monkeypatch.setattr(preparation, "_link_libraries", link)


def test_every_step_of_a_preparation_is_told_once(quick: None, tmp_path: Path) -> None:
    told: list[Preparing] = []
    preparation.prepare_headers(tmp_path, told.append)
    assert (told[0].done, told[0].total) == (0, 1), "before another process's preparation is waited for"
    total = told[-1].total
    assert [(event.done, event.total) for event in told[1:]] == [(done, total) for done in range(total + 1)]
    assert total > 10, "two headers, the units of runtime and bridge, and the libraries"
    (what,) = {event.what for event in told}
    assert what.startswith("the host device, once for torch ")
    assert " and g++ " in what


def test_what_is_there_is_not_prepared(quick: None, tmp_path: Path) -> None:
    preparation.prepare_headers(tmp_path)
    told: list[Preparing] = []
    prepared = preparation.prepare_headers(tmp_path, told.append)
    assert not told
    preparation.precompile(None, prepared, Precompiled.FULL, checked=True, tell=told.append)  # type: ignore[arg-type]
    assert [(event.done, event.total) for event in told] == [(0, 1), (1, 1)]
    assert told[0].what.startswith("further headers of the host device, once for torch ")
    assert replace(told[0], done=1) == told[1]
