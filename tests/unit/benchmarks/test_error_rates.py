"""Error rates of verdicts: simulated evaluations follow the recorded ones, and every verdict is counted."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from harness.core.choices import DeviceKind
from harness.core.record import Record
from harness.core.stats import speedup_interval
from harness.core.status import Status
from harness.results.compare import Change
from harness.results.scoring import entries_of
from harness.results.writer import RunStore
from tests.benchmarks import bench_error_rates as command
from tests.benchmarks import error_rates as rates


def recorded(ratio: float = 1.0, *, spread: float = 0.002, seed: int = 1, rounds: int = 20, number: int = 0) -> Record:
    """An evaluation of calls of 100 us and more, whose bursts scatter independently."""
    rng = random.Random(seed)

    def bursts(call_s: float) -> list[list[float]]:
        return [[call_s * math.exp(rng.gauss(0.0, spread))] * 3 for _ in range(rounds)]

    reference, solution = bursts(100e-6 * ratio), bursts(100e-6)
    estimate = speedup_interval(reference, solution)
    return Record(
        problem="level1/1",
        author="ann",
        solution=f"ann/level1/1_{number}.py",
        device=DeviceKind.CUDA,
        workload="full",
        status=Status.passed,
        reason="as tested",
        speedup=estimate.speedup,
        environment={"gpu": "some GPU"},
        timing={
            "reference": {"samples_s": reference, "device": {"median_s": 100e-6 * ratio}},
            "solution": {"samples_s": solution, "device": {"median_s": 100e-6}},
            "speedup": estimate.to_json(),
            "noise_floor": {"log_width": 0.005},
            "spent_s": 0.05 * rounds,
        },
    )


def twin(share: float, **changes: float | int) -> Record:
    return replace(recorded(1.0 / (1.0 + share), **changes), evidence={rates.PLANTED: share})  # type: ignore[arg-type]


@pytest.mark.parametrize(("count", "block"), [(8, 4), (9, 4), (12, 1), (10, 6)])
def test_drawn_rounds_keep_their_order_and_blocks_their_neighbours(count: int, block: int) -> None:
    places = rates.draw_rounds(random.Random(1), count, 40, block=block)
    assert len(places) == 40
    assert all(place % 2 == at % 2 for at, place in enumerate(places)), "A B and B A take turns"
    whole = count - count % 2
    assert set(places) == set(range(whole))
    steps = [(b - a) % whole for a, b in itertools.pairwise(places)]
    assert all(step == 1 for at, step in enumerate(steps, 1) if at % block)


def test_a_quiet_recording_gives_no_false_verdict_and_every_slowdown_of_2_percent() -> None:
    groups = rates.sources_of([recorded(ratio=3.0)])
    counts = rates.simulate(groups, "independent rounds", 40, seed=0)
    for verdict in rates.VERDICTS:
        assert counts[rates.Row("independent rounds", True, verdict, 0.0)] == {Change.same: 40}
    assert counts[rates.Row("independent rounds", True, "eager", 0.02)] == {Change.slower: 40}


def test_a_wrong_ratio_is_seen_as_false_verdicts() -> None:
    (group,) = rates.sources_of([twin(0.0), twin(0.0, seed=2)])
    assert [source.ratio for source in group] == [1.0, 1.0]
    wrong = [replace(source, ratio=0.97) for source in group]
    counts = rates.simulate([wrong], "blocks of 4 rounds", 20, seed=0)
    assert counts[rates.Row("blocks of 4 rounds", True, "eager", 0.0)] == {Change.faster: 20}


def test_a_simulated_evaluation_ends_by_the_harness_s_own_rule() -> None:
    ((quiet,),) = rates.sources_of([recorded()])
    ((loud,),) = rates.sources_of([recorded(spread=0.05)])
    rng = random.Random(3)
    rounds = [len(rates.bursts_of(rates.evaluate(source, rng, block=1), "solution")) for source in (quiet, loud)]
    assert rounds[0] == 4
    assert rounds[1] > 10


def test_the_noise_floor_of_a_simulated_evaluation_follows_the_rounds_drawn() -> None:
    ((quiet,),) = rates.sources_of([recorded()])
    ((loud,),) = rates.sources_of([recorded(spread=0.05)])
    floors = [rates.with_rounds(source, range(8)).timing["noise_floor"]["log_width"] for source in (quiet, loud)]  # type: ignore[index]
    assert floors[0] == 0.005
    assert floors[1] > 0.02


def test_recordings_of_few_rounds_or_without_a_noise_floor_are_left_out() -> None:
    bare = recorded()
    assert bare.timing is not None
    bare = replace(bare, timing={name: held for name, held in bare.timing.items() if name != "noise_floor"})
    assert rates.sources_of([recorded(rounds=4), bare, twin(0.02)]) == []


def test_the_verdict_eager_is_the_one_of_boards() -> None:
    for seed in range(30):
        record = recorded(1.0 + 0.002 * seed, seed=seed, spread=0.004, rounds=8)
        (entry,) = entries_of([record])
        assert entry.counted is not None
        assert (rates.verdicts_of(record, record)["eager"] is Change.faster) == (entry.counted > 1.0)


def test_measured_twins_are_counted_once_against_eager_and_once_against_the_one_before() -> None:
    run = [twin(0.0, seed=1, number=1), twin(0.0, seed=2, number=2), twin(0.02, seed=3, number=3)]
    counts = rates.measured([run, [recorded()]])
    assert counts[rates.Row("measured", True, "eager", 0.0)] == {Change.same: 2}
    assert counts[rates.Row("measured", True, "eager", 0.02)] == {Change.slower: 1}
    assert counts[rates.Row("measured", True, "one run", 0.0)] == {Change.same: 1}
    assert counts[rates.Row("measured", True, "one run", 0.02)] == {Change.slower: 1}


def test_the_bound_of_a_rate_is_the_known_one() -> None:
    assert rates.at_most(0, 500) == pytest.approx(1 - 0.05 ** (1 / 500), rel=1e-3)
    assert rates.at_most(5, 5000) == pytest.approx(0.0021, abs=1e-4)
    assert rates.at_most(3, 3) == 1.0


def test_the_shards_make_every_evaluation_once_and_each_slowdown_after_a_twin() -> None:
    whole = list(command.evaluations(500, 208, (1, 1)))
    assert [sum(item.share == share for item in whole) for share in (0.0, 0.02)] == [500, 208]
    parts = [list(command.evaluations(500, 208, (part, 4))) for part in (1, 2, 3, 4)]
    assert sorted(map(repr, itertools.chain.from_iterable(parts))) == sorted(map(repr, whole))
    for part in parts:
        for batch in range(command.BATCHES):
            level: set[int] = set()
            for item in (item for item in part if item.batch == batch):
                assert not item.share or item.kernel in level
                level |= {item.kernel} if not item.share else set()


def test_the_page_says_of_each_promise_whether_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunStore.create(tmp_path / "run", config={}, environment={}) as store:
        for number in range(4):
            store.append(twin(0.02 * (number // 2), seed=number, number=number))
    out = tmp_path / "page.md"
    monkeypatch.setattr("sys.argv", ["bench", str(tmp_path), "--pairs", "20", "--processes", "1", "--out", str(out)])
    command.main()
    text = out.read_text()
    assert text in capsys.readouterr().out
    assert "| level1/1 | 2% | 2 | 100.0 | 0.98" in text
    assert "measured, eager: 0 of 2 falsely faster" in text
    assert (
        "independent rounds, eager: 20 of 20 slowdowns of 2% found in calls of 50 us and more; at least 99%: **yes**"
        in text
    )
