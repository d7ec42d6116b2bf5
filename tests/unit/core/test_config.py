"""Configuration: layers, what is settled, and what a wrong key or value is told."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.core.choices import DeviceKind, PrecisionClass
from harness.core.config import GIB, KEYS, TIMING_KEYS, ConfigError, Machine, RunConfig, TimingConfig, resolve

GPU = Machine(device=DeviceKind.CUDA, cpu_count=16, memory_bytes=128 * GIB)
LAPTOP = Machine(device=DeviceKind.HOST, cpu_count=2, memory_bytes=8 * GIB)


def settle(machine: Machine = LAPTOP, file: Path | None = None, **options: object) -> RunConfig:
    return resolve(machine=machine, run_id="run-1", file=file, options={"paths": ["solutions"], **options})


def write(folder: Path, text: str, name: str = "run.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_every_field_of_the_result_has_a_key() -> None:
    assert {item.name for item in fields(RunConfig)} == {*KEYS, "timing"}
    assert {item.name for item in fields(TimingConfig)} == set(TIMING_KEYS)


def test_defaults_follow_the_machine() -> None:
    here, there = settle(LAPTOP), settle(GPU)
    assert (here.device, here.workload, here.jobs) == (DeviceKind.HOST, "small", 2)
    assert (there.device, there.workload, there.jobs) == (DeviceKind.CUDA, "full", 8)
    assert here.memory_limit_bytes == 6 * GIB
    assert there.memory_limit_bytes == 32 * GIB
    assert here.run_id == "run-1"
    assert here.run_dir == Path("results/run-1")
    assert here.cache_dir.is_absolute()


def test_builds_at_once_are_bounded_by_memory() -> None:
    tight = Machine(device=DeviceKind.HOST, cpu_count=64, memory_bytes=10 * GIB)
    assert settle(tight).jobs == 3
    starved = Machine(device=DeviceKind.HOST, cpu_count=64, memory_bytes=1 * GIB)
    assert settle(starved).jobs == 1


def test_a_named_device_beats_the_machine_and_brings_its_workload() -> None:
    assert settle(GPU, device="host").workload == "small"
    assert settle(GPU, device="host", workload="full").workload == "full"


def test_the_file_beats_defaults_and_the_command_line_beats_the_file(tmp_path: Path) -> None:
    text = "seeds: 5\njobs: 3\ntiming:\n  budget_s: 2\n  min_samples: 40\n"
    config = settle(file=write(tmp_path, text), jobs=7, min_samples=50, seeds=None)
    assert config.seeds == 5
    assert config.jobs == 7
    assert config.timing.budget_s == 2.0
    assert config.timing.min_samples == 50
    assert config.timing.sets_per_burst == 8


def test_paths_in_a_file_start_at_its_folder(tmp_path: Path) -> None:
    file = write(tmp_path, "paths: [mine, /abs]\nproblems: p\nout: ~/r\n")
    config = resolve(machine=LAPTOP, run_id="r", file=file)
    assert config.paths == (tmp_path / "mine", Path("/abs"))
    assert config.problems == tmp_path / "p"
    assert config.out == Path.home() / "r"


def test_a_run_yaml_repeats_its_run_under_a_new_name(tmp_path: Path) -> None:
    first = settle(seeds=4, problems="elsewhere", precision="bf16", budget_s=1.5)
    head = {"format": 1, "config": {**first.to_json(), "run_id": "old", "resume": True}}
    again = resolve(machine=LAPTOP, run_id="run-1", file=write(tmp_path, yaml.safe_dump(head)))
    assert again == first


def test_the_json_form_does_not_spell_out_where_things_are() -> None:
    config = settle(problems=str(Path.cwd() / "problems"), out=str(Path.home() / "runs"))
    assert config.to_json()["problems"] == "problems"
    assert config.to_json()["out"] == "~/runs"
    assert str(Path.home()) not in yaml.safe_dump(config.to_json())


def test_a_memory_limit_in_which_nothing_could_run_is_refused() -> None:
    assert settle(memory_limit_bytes="256MiB").memory_limit_bytes == GIB // 4
    with pytest.raises(ConfigError, match=r"`memory_limit_bytes` \(--memory-limit\) must be at least 256 MiB"):
        settle(memory_limit_bytes="8")


def test_the_memory_of_a_gpu_is_limited_only_on_one_and_told_as_a_condition() -> None:
    held = settle(GPU, gpu_memory_bytes="24GiB")
    assert held.gpu_memory_bytes == 24 * GIB
    assert held.conditions == "24 GiB of GPU memory"
    assert settle(GPU).conditions is None
    for machine, more in ((LAPTOP, {}), (GPU, {"device": "host"})):
        with pytest.raises(ConfigError, match=r"\(--gpu-memory\) limits a GPU's memory, but the device is host"):
            settle(machine, gpu_memory_bytes="24GiB", **more)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"seeds": 10**23}, "`seeds` must be a whole number from 1 to 1024"),
        ({"workers": 10**20}, "`workers` must be"),
        ({"jobs": 10**5000}, "`jobs` must be"),
        ({"budget_s": -1.0}, "`budget_s` (--timing-budget) must be a number above 0"),
        ({"load_timeout_s": 1e8}, "(--load-timeout) must be a number of seconds above 0, at most 604800"),
        ({"solution_timeout_s": 1e12}, "(--solution-timeout) must be a number of seconds"),
        ({"baselines": "eager,eager"}, "`baselines` (--baseline) must be"),
        ({"run_id": "x" * 5000}, "1 to 100 letters"),
        ({"cache_dir": "~nosuchuser/x"}, "a path whose ~user exists on this machine"),
    ],
    ids=lambda held: next(iter(held)) if isinstance(held, dict) else "",
)
def test_options_are_named_as_they_are_typed_and_bounded(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settle(**wrong)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 500


def test_the_folder_of_caches_is_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert settle(cache_dir="here").cache_dir == tmp_path / "here"
    monkeypatch.setenv("HARNESS_CACHE", "there")
    assert settle().cache_dir == tmp_path / "there"


def test_a_policy_is_refused_with_the_name_of_its_file(tmp_path: Path) -> None:
    file = write(tmp_path, "min_own_share: 7", "policy.yaml")
    with pytest.raises(ConfigError) as caught:
        settle(policy=file)
    assert str(caught.value).startswith(f"{file}: the policy must be a mapping whose min_own_share")
    for nothing in ("", "# min_own_share: 0.5\n", "{}"):
        with pytest.raises(ConfigError, match="the policy file has no rule; add one of require_custom_kernel"):
            settle(policy=write(tmp_path, nothing, "policy.yaml"))
    assert "PosixPath" not in str(caught.value)


def test_off_is_a_word_even_where_yaml_reads_a_boolean(tmp_path: Path) -> None:
    assert settle(file=write(tmp_path, "sandbox: off\n")).sandbox == "off"


def test_precision_is_a_class_or_the_problems_own() -> None:
    assert settle().precision is None
    assert settle(precision="fp16").precision is PrecisionClass.FP16


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sedes: 3", "unknown key `sedes`; did you mean `seeds`?"),
        ("timing: {budget: 3}", "unknown key `timing.budget`; did you mean `timing.budget_s`?"),
        ("timings: {}", "did you mean `timing`?"),
        ("qqqq: 1", "known: paths, problem"),
        ("seeds: 0", "`seeds` must be a whole number from 1 to 1024, not 0"),
        ("seeds: true", "`seeds` must be a whole number"),
        ("jobs: many", "`jobs` must be a whole number"),
        ("checked: 'yes'", "`checked` must be true or false"),
        ("device: gpu", "`device` must be one of auto, cuda, host"),
        ("device_policy: stict", "nearest: strict"),
        ("precision: fp64", "`precision` must be one of fp32"),
        ("compile_timeout_s: -1", "`compile_timeout_s` must be a number above 0"),
        ("compile_timeout_s: .nan", "`compile_timeout_s` must be a number above 0"),
        ("compile_timeout_s: .inf", "`compile_timeout_s` must be a number above 0"),
        ("timing: {relative_half_width: 1e-3}", "YAML reads 1e-3 as text: write 0.001"),
        ("timing: {relative_half_width: 2}", "between 0 and 1"),
        ("timing: 3", "`timing` must be a mapping of min_samples"),
        ("memory_limit_bytes: 8 gigs", "such as 8589934592 or 8GiB"),
        ("run_id: ../up", "`run_id` must be a folder name"),
        ("problems: 3", "`problems` must be a path"),
        ("- a\n- b", "must have `key: value` lines, not a list"),
        ("a: [", "not valid YAML"),
        ("seeds: 1\nseeds: 2", "duplicate key `seeds`"),
        ("? [a]\n: 4", "a key must be a word"),
        ("{[1]: 2}", "a key must be a word"),
        ("seeds: 2026-99-99", "not valid YAML"),
        ("seeds: " + "9" * 5000, "not valid YAML"),
        ("[" * 3000, "not valid YAML"),
        ("format: 99\nconfig: {}", "format 99; this harness reads 1 to 1"),
    ],
)
def test_what_is_wrong_is_named_with_the_file(tmp_path: Path, text: str, said: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        settle(file=file)
    assert said in str(caught.value)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "unicode string" not in str(caught.value)


def test_a_wrong_option_is_named_as_such() -> None:
    with pytest.raises(ConfigError, match=r"command line: `device` must be one of auto, cuda, host, not 'tpu'"):
        settle(device="tpu")


def test_a_missing_file_and_a_file_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such configuration file"):
        settle(file=tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="can't be read"):
        settle(file=tmp_path / "binary.yaml")


def test_no_solutions_named_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no solutions named"):
        resolve(machine=LAPTOP, run_id="r")
