"""What a shell offers after the key Tab: words of choices, ids of problems, names of baselines."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.catalog import load_problems
from harness.catalog.problems import ids_in
from harness.cli import main
from harness.core.status import STATUS_CHOICES
from tests.support.paths import ROOT


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("eval x --device ", "auto cuda host"),
        ("eval x --dev", "--device --device-policy"),
        ("eval x --device-policy ", "strict coerce"),
        ("eval x --audit a", "auto always"),
        ("eval x --precision ", "fp32 tf32 fp16 bf16 int8 fp8_e4m3 mxfp8 fp8_e5m2 fp8 nvfp4 int4 mxfp4"),
        ("eval x --sandbox ", "auto strict off"),
        ("eval x --status da", "data_race"),
        ("show last --status ", " ".join(STATUS_CHOICES)),
        ("problems lint --device h", "host"),
        ("baseline --device c", "cuda"),
        ("serve --device a", "auto"),
        ("mcp --device c", "cuda"),
        (
            "baseline --baseline eager,comp",
            "eager,compile eager,compile_tf32 eager,compile_max_autotune eager,compile_max_autotune_no_cudagraphs",
        ),
        ("leaderboard x --baseline eager_t", "eager_tf32"),
        ("eval x --problem level3/11", "level3/110 level3/111 level3/112 level3/113 level3/114"),
        ("eval x --problem level1/1,level2/139", "level1/1,level2/139"),
        ("problems show level2/139", "level2/139"),
        ("new solution level2/139", "level2/139"),
        ("profile x --problem level2/139", "level2/139"),
        ("eval x --problem nowhere/", ""),
        ("eval x --problems gone --problem level1", ""),
    ],
)
def test_the_shell_is_offered(
    typed: str, offered: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    words = f"harness {typed}"
    monkeypatch.setenv("_HARNESS_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    assert main([]) == 0
    assert capsys.readouterr().out.split() == offered.split()


def test_ids_by_names_of_files_are_those_of_the_catalog(tmp_path: Path) -> None:
    assert ids_in(ROOT / "problems") == list(load_problems(ROOT / "problems").known)
    assert ids_in(tmp_path) == ids_in(tmp_path / "gone") == []


@pytest.mark.parametrize("command", [("problems", "lint"), ("baseline",), ("eval", "solutions")])
def test_one_vocabulary_names_the_devices(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--device", "cpu"]) == 2
    said = capsys.readouterr().err
    assert "must be one of auto, cuda, host" in said
    assert "'cpu'" in said
