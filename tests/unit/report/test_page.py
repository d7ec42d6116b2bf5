"""The report's page and figures, without a browser: what is in it, what is escaped, what it may not do."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.cli.reports import Form
from harness.core.choices import DeviceKind
from harness.core.problem import digest_text
from harness.core.record import Record
from harness.core.status import Status
from harness.devices.occupancy import MultiprocessorLimits
from harness.protocol.kernel_rows import KernelRow
from harness.referee.contestants.kernel_census import KernelSources, conclude
from harness.report import csv as report_csv
from harness.report import figures
from harness.report import format as show
from harness.report.feedback import feedback
from harness.report.figures import points_of
from harness.report.html import Changes, Item, render
from harness.report.html.charts import Scale, samples
from harness.report.html.group import FEW
from harness.results.compare import compare_runs
from harness.results.leaderboard import By, leaderboard
from harness.results.scoring import entries_of, score
from harness.results.writer import RunStore
from tests.support.paths import TESTS

HERE = TESTS
RESULTS = HERE.parent / "results"
RECORDS = [
    Record.from_json(json.loads(line))
    for name in ("h200", "host")
    for line in (HERE / "golden" / "records" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
]
LATER = datetime.now(UTC).isoformat()
NEEDS_MATPLOTLIB = pytest.mark.skipif(
    find_spec("matplotlib") is None, reason="matplotlib (the extra `plots`) isn't installed"
)


def items(records: Sequence[Record], **changes: Any) -> list[Item]:
    return [Item(record=record, run="a run", feedback=feedback(record), **changes) for record in records]


class Reader(HTMLParser):
    """Tags with their attributes, and texts, as a browser with scripts turned off reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


def rendered(records: Sequence[Record] = tuple(RECORDS), **changes: Any) -> str:
    given: dict[str, Any] = {"title": "Results", "made_at": "2026-01-31", "with_figures": False}
    return render(items(records), **{**given, **changes})


class TestPage:
    def test_every_record_has_a_section_with_verdict_feedback_and_evidence(self) -> None:
        reader = read(rendered())
        sections = [held["id"] for held in reader.all("section") if held.get("class") == "page solution"]
        assert sections == [f"s{n}" for n in range(len(RECORDS))]
        for record in RECORDS:
            assert record.solution in reader.text
            assert record.status.value in reader.text
        assert "pattern: scattered over 62 % of the places" in reader.text
        assert "reference rms error" in reader.text
        assert "matmul_kernel" in reader.text

    def test_every_link_leads_somewhere_on_the_page(self) -> None:
        reader = read(rendered())
        ids = {held["id"] for _, held in reader.tags if "id" in held}
        links = {str(held["href"]) for held in reader.all("a")}
        assert {link for link in links if not (link.startswith("#") and link[1:].split("?")[0] in ids)} == set()
        assert len({held["id"] for _, held in reader.tags if "id" in held}) == sum("id" in h for _, h in reader.tags)

    def test_every_solution_of_the_leaderboard_is_linked_to_its_own_record(self) -> None:
        page = rendered()
        for number, record in enumerate(RECORDS):
            assert re.search(rf'<a href="#s{number}">{re.escape(record.solution)}</a>', page)

    def test_host_and_gpu_stand_apart(self) -> None:
        groups = rendered().split('<section class="group"')[1:]
        said = [re.findall(r'<p class="conditions"><span>([^<:]*)', group)[0] for group in groups]
        assert said == ["GPU", "host device"]

    def test_the_summary_counts_passes_failures_and_speeds(self) -> None:
        gpu = [record for record in RECORDS if record.device is DeviceKind.CUDA]
        cards = read(rendered(gpu).split('<div class="cards">')[1].split("<table")[0])
        words = " ".join(cards.text.split())
        passed = sum(record.status is Status.passed for record in gpu)
        assert f"Passed {passed} of {len(gpu)}" in words
        assert f"Failed {len(gpu) - passed}" in words
        counted = Counter(record.status.value for record in gpu if record.status is not Status.passed)
        for status, number in counted.items():
            assert f"{number} {status}" in words
            assert {"class": "failed", "href": f"#g0-solution?status={status}"}.items() <= next(
                held for held in cards.all("a") if str(held["href"]).endswith(status)
            ).items()
        tally = score(entries_of(gpu))
        assert f"Geometric mean speedup {show.speedup(tally.speedup)}" in words
        assert f"2 {show.share(tally.fast_p[2.0])}" in words
        assert f"{show.share(tally.sol_fraction)} of the speed of light" in words

    def test_results_without_a_verdict_are_no_failures(self) -> None:
        unjudged = replace(RECORDS[0], solution="x.py", status=Status.harness_error, reason="no disk", speedup=None)
        cards = rendered([*RECORDS[:1], unjudged]).split('<div class="cards">')[1].split("<table")[0]
        words = " ".join(read(cards).text.split())
        assert f"Passed {int(RECORDS[0].status is Status.passed)} of 1" in words
        assert "without a verdict: 1 harness_error" in words
        assert f"Failed {int(RECORDS[0].status is not Status.passed)} " in words

    def test_nothing_timed_is_said(self) -> None:
        host = [record for record in RECORDS if record.device is DeviceKind.HOST]
        page = rendered(host, with_figures=True)
        assert "nothing was timed" in page
        assert "fast_p</h3>" not in page
        assert "<svg" not in page

    def test_few_solutions_come_before_the_charts_and_many_after_them(self) -> None:
        (first, *_) = [record for record in RECORDS if record.speedup]
        for number, few in ((FEW, True), (FEW + 1, False)):
            records = [replace(first, solution=f"{first.author}/{n}.py") for n in range(number)]
            page = rendered(records, with_figures=True)
            assert (page.index('id="g0-solution"') < page.index("<figure>")) == few

    def test_a_problem_has_a_page_with_all_solutions_baselines_and_limits(self) -> None:
        held = next(r for r in RunStore.open(RESULTS / "h200").records() if (r.timing or {}).get("baselines"))
        slower = replace(held, author="b", solution="b/x.py", finished_at=LATER)
        other = replace(held, problem="level9/9", solution="a/9.py")
        page = rendered([held, slower, other])
        number = sorted({held.problem, other.problem}).index(held.problem)
        text = read(page.split(f'data-for="p{number}"')[1].split("</noscript>")[0])
        assert {held.solution, slower.solution} <= set(text.texts)
        assert other.solution not in text.text
        assert held.timing is not None
        light, baselines = held.timing["speed_of_light"], held.timing["baselines"]
        for expected in (
            show.duration(light["sol_time_s"]),
            light["bound"],
            "reference (eager)",
            *baselines,
            *(show.duration(row["device_s"]) for row in baselines.values()),
        ):
            assert expected in text.texts, expected
        assert f'<a href="#p{number}">{held.problem}</a>' in page

    def test_findings_stand_with_the_line_of_the_solution(self) -> None:
        (race,) = [r for r in RECORDS if r.status is Status.data_race]
        (refused, *_) = [r for r in RECORDS if r.status is Status.compile_error]
        report = {"kind": "data_race", "message": "a read races", "line": 25, "file": "x.py"}
        report |= {"other_line": 22, "other_file": "x.py", "other_access": "write"}
        elsewhere = {"kind": "data_race", "message": "in a header", "line": 3, "file": "torch.h"}
        found = [replace(race, evidence={"reports": [report, report, elsewhere]}), refused]
        for record, expected in (
            (found[0], [("22", "data race: the other access, a write"), ("25", "data race: a read races")]),
            (found[1], [("16", 'identifier "width" is undefined')]),
            (
                replace(refused, status=Status.syntax_error, reason="line 3: odd", evidence={"line": 3}),
                [("3", "line 3: odd")],
            ),
        ):
            page = render(items([record], source="x\n" * 40), title="t", made_at="now", with_figures=False)
            said = re.findall(r'<li data-line="(\d+)"><b>line \1</b> ([^<]*)</li>', page)
            assert [(line, html.unescape(text)) for line, text in said] == expected

    def test_the_rows_are_there_as_csv_and_json(self) -> None:
        gpu = [record for record in RECORDS if record.device is DeviceKind.CUDA]
        page = rendered(gpu)
        rows = leaderboard(gpu, by=By.solution)
        texts = {form: html.unescape(text) for form, text in re.findall(r'data-form="(\w+)">([^<]*)</template>', page)}
        assert texts["csv"] + "\n" == report_csv.leaderboard(rows)
        names, *values = map(json.loads, texts["json"].split("\n"))
        assert [dict(zip(names, row, strict=True)) for row in values] == [row.to_json() for row in rows]

    def test_only_several_runs_have_a_history(self) -> None:
        timed = [record for record in RECORDS if record.speedup]
        assert "History" not in rendered(timed, with_figures=True)
        both = [
            *items(timed),
            *(replace(item, run="later") for item in items([replace(r, finished_at=LATER) for r in timed])),
        ]
        page = render(both, title="t", made_at="now")
        chart = page.split("<h3>History</h3>")[1].split("</svg>")[0]
        authors = {record.author for record in timed}
        assert {
            f'href="#g0-solution?run={run}&amp;author={author}"' in chart
            for author in authors
            for run in ("a%20run", "later")
        } == {True}

    def test_nothing_is_loaded_and_only_the_page_s_own_script_may_run(self) -> None:
        page = rendered()
        reader = read(page)
        assert not [attributes for _, attributes in reader.tags if "src" in attributes or "srcset" in attributes]
        assert [held["href"] for held in reader.all("link")] == ["data:,"]
        (policy,) = (held["content"] for held in reader.all("meta") if held.get("http-equiv"))
        (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert policy is not None
        assert f"script-src 'sha256-{digest}';" in policy
        assert policy.startswith("default-src 'none'")

    def test_sources_and_logs_are_shown_as_they_are(self) -> None:
        source = "x = '<b>&amp;</b>'\n"
        page = render(
            items(RECORDS[:1], source=source, log="nvcc: <error>"), title="t", made_at="now", with_figures=False
        )
        reader = read(page)
        assert source.strip() in reader.text
        assert "nvcc: <error>" in reader.text
        assert not reader.all("error")

    def test_two_runs_tell_what_changed(self) -> None:
        cold, warm = (RunStore.open(RESULTS / f"h200-transcripts-{name}").records() for name in ("cold", "warm"))
        found = compare_runs(cold, warm)
        page = rendered([*cold, *warm], changes=Changes(before="cold", after="warm", found=found))
        reader = read(page)
        assert "From cold to warm" in reader.text
        assert "3 same, 2 failing; nothing got worse" in reader.text
        assert [held["id"] for held in reader.all("div") if held.get("id") == "changes"] == ["changes"]

    def test_the_same_solution_on_two_gpus_is_linked_to_the_record_of_each(self) -> None:
        other = replace(RECORDS[0], environment={"gpu": "NVIDIA L4"}, finished_at=LATER)
        page = rendered([RECORDS[0], other])
        boards = page.split('<section class="group"')[1:]
        assert [set(re.findall(r'href="#(s\d)"', board.split("<noscript")[0])) for board in boards] == [{"s0"}, {"s1"}]

    def test_records_of_one_solution_lead_to_each_other(self) -> None:
        page = rendered([RECORDS[0], replace(RECORDS[0], finished_at=LATER)])
        assert page.count("Other results of this solution") == 2


HOSTILE = "</noscript></script><script>alert(1)</script><img src=x onerror=alert(1)>\"'`{{7*7}}${7}\x1b[31m\u202e]]>-->"


def hostile(held: Any) -> Any:
    if isinstance(held, dict):
        return {f"{key}{HOSTILE}" if key == "note" else key: hostile(value) for key, value in held.items()}
    if isinstance(held, list | tuple):
        return [hostile(value) for value in held]
    return HOSTILE if isinstance(held, str) else held


def attacking(record: Record) -> Record:
    """The record with every text of a submission's replaced."""
    timing = hostile(dict(record.timing)) if record.timing else None
    if timing is not None and record.timing and "speed_of_light" in record.timing:
        timing["speed_of_light"]["bound"] = record.timing["speed_of_light"]["bound"]
    return Record(
        problem=HOSTILE,
        author=HOSTILE,
        solution=HOSTILE + record.solution,
        device=record.device,
        workload=HOSTILE,
        status=record.status,
        reason=HOSTILE.replace("\x1b", ""),
        labels=(HOSTILE,),
        speedup=record.speedup,
        evidence=hostile(dict(record.evidence)),
        timing=timing,
        build=hostile(dict(record.build)) if record.build else None,
        environment=hostile(dict(record.environment)),
        solution_digest=HOSTILE,
        finished_at=HOSTILE,
    )


@pytest.mark.parametrize("with_figures", [False, True])
def test_no_text_of_a_submission_becomes_markup(with_figures: bool) -> None:
    bad = [attacking(record) for record in RECORDS]
    held = [Item(record=item, run=HOSTILE, source=HOSTILE, log=HOSTILE, feedback=feedback(item)) for item in bad]
    changes = Changes(before=HOSTILE, after=HOSTILE, found=compare_runs(bad, bad))
    page = render(held, title=HOSTILE, made_at=HOSTILE, changes=changes, with_figures=with_figures)
    reader = read(page)
    assert len(reader.all("script")) == 1
    assert not reader.all("img")
    assert not [name for _, attributes in reader.tags for name in attributes if name.startswith("on")]
    assert not [1 for _, attributes in reader.tags for value in attributes.values() if "javascript:" in str(value)]
    assert page.count("<noscript") == page.count("</noscript>") == len(bad) + 1, "the results and one problem"
    assert page.count("<template") == page.count("</template>") > 0
    assert page.count("<svg") == page.count("</svg>")
    assert "49" not in page.split("<title>")[1].split("</title>")[0]
    assert not set(page) & set("\x1b\u202e")


class TestFigures:
    def test_every_timed_solution_is_a_point_of_the_roofline_and_leads_to_its_page(self) -> None:
        gpu = [record for record in RECORDS if record.device is DeviceKind.CUDA]
        points = points_of(gpu, links={id(record): f"#s{n}" for n, record in enumerate(gpu)})
        assert len(points) == sum(record.speedup is not None for record in gpu) > 0
        page = rendered(with_figures=True)
        svg = page.split("<h3>Roofline</h3>", 1)[1].split("</svg>", 1)[0]
        for point in points:
            assert f'href="{point.link}"' in svg

    def test_a_solution_measured_twice_is_one_point(self) -> None:
        (first,) = [record for record in RECORDS if record.speedup][:1]
        again = replace(first, finished_at=LATER)
        for order in ([first, again], [again, first]):
            (point,) = points_of(order, links={id(first): "#old", id(again): "#new"})
            assert point.link == "#new"

    def test_a_record_that_finishes_in_the_future_is_neither_the_point_nor_the_link(self) -> None:
        (first,) = [record for record in RECORDS if record.speedup][:1]
        crafted = replace(first, finished_at="2999-01-01T00:00:00+00:00")
        for order in ([first, crafted], [crafted, first]):
            (point,) = points_of(order, links={id(first): "#own", id(crafted): "#crafted"})
            assert point.link == "#own"
            board = rendered(order).split('<section class="group"')[1].split("<noscript")[0]
            assert set(re.findall(r'href="#(s\d)"', board)) == {f"s{order.index(first)}"}

    def test_intensities_are_those_of_the_problems(self) -> None:
        for point, record in zip(points_of(RECORDS), [r for r in RECORDS if r.speedup], strict=True):
            assert record.timing is not None
            light = record.timing["speed_of_light"]
            assert (point.intensity >= 1) == (light["bound"] == "compute")
            assert point.fraction == light["fraction"]

    @NEEDS_MATPLOTLIB
    def test_the_same_records_give_the_same_bytes(self) -> None:
        entries = entries_of(RECORDS)
        drawing = figures.drawings(entries[0].group, entries, points_of(RECORDS))[-1]
        for form in Form:
            assert figures.drawn(drawing, form.value) == figures.drawn(drawing, form.value)

    @NEEDS_MATPLOTLIB
    def test_a_formula_in_a_name_is_not_interpreted(self) -> None:
        name = "$\\frac{1}{$ _hidden"
        timed = [r for r in RECORDS if r.speedup]
        bad = [Record.from_json({**record.to_json(), "author": name}) for record in timed]
        entries = entries_of(bad)
        for drawing in figures.drawings(entries[0].group, entries, points_of(bad)):
            assert "frac{1}{$ _hidden" in figures.drawn(drawing, "svg").decode()

    def test_a_chart_has_the_numbers_of_its_records(self) -> None:
        timed = [record for record in RECORDS if record.speedup]
        page = rendered(timed, with_figures=True)
        charts = {name: read(page.split(f"<h3>{name}</h3>")[1].split("</svg>")[0]) for name in ("Speedups", "fast_p")}
        bars = [int(text.split(": ")[1].split()[0]) for text in charts["Speedups"].texts if " solution" in text]
        assert sum(bars) == len(timed)
        for record in timed:
            assert any(
                record.solution in text and show.speedup(record.speedup) in text for text in charts["Speedups"].texts
            )
        for author in {record.author for record in timed}:
            own = [entry for entry in entries_of(timed) if entry.author == author]
            faster = show.share(sum((entry.counted or 0) > 1 for entry in own) / len(own))
            assert any(text.startswith(f"{author}, ") and f"fast_1 {faster}" in text for text in charts["fast_p"].texts)

    @pytest.mark.parametrize(
        ("scale", "expected"),
        [
            (Scale(0.72, 1.45, 0, 100), [0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4]),
            (Scale(0.3, 30, 0, 100), [0.5, 1, 2, 5, 10, 20]),
            (Scale(0.0015, 4e5, 0, 100), [0.01, 1, 100, 10_000]),
            (Scale(0, 37, 0, 100, log=False), [0, 5, 10, 15, 20, 25, 30, 35]),
        ],
    )
    def test_ticks_are_round_numbers(self, scale: Scale, expected: list[float]) -> None:
        assert scale.ticks() == pytest.approx(expected)
        places = [scale(tick) for tick in expected]
        assert places == sorted(places)
        assert 0 <= places[0] < places[-1] <= 100

    @NEEDS_MATPLOTLIB
    def test_many_authors_share_a_colour_beyond_the_tenth(self) -> None:
        (record,) = [r for r in RECORDS if r.speedup][:1]
        many = [Record.from_json({**record.to_json(), "author": f"a{n}", "solution": f"s{n}"}) for n in range(15)]
        colours = figures.colours_of(entries_of(many))
        assert len(colours) == len(set(colours.values())) == figures.MAX_AUTHORS
        entries = entries_of(many)
        for drawing in figures.drawings(entries[0].group, entries, points_of(many)):
            assert figures.OTHERS in figures.drawn(drawing, "svg").decode()


def taken_census() -> dict[str, Any]:
    """A census as records have it, made by the harness's own conclusion from what a contestant says."""
    rows = [
        [
            "kernel",
            "_Z13matvec_kernelPKfS0_Pfl",
            "matvec_kernel(float const*)",
            [2048, 1, 1],
            [256, 1, 1],
            37,
            64,
            0,
            0,
        ],
        ["kernel", "ampere_sgemm", "ampere_sgemm_128x64_<b>tn</b>", [16, 64, 2], [128, 1, 1], 122, 0, 16384, 0],
        ["fill", "", "memset", [1, 1, 1], [1, 1, 1], 0, 0, 0, 0],
    ]
    times = ((1, 1.9e-3), (3, 1e-4), (1, 2e-6))
    claimed = {
        "rows": [
            KernelRow.of(*row, calls=calls, total_s=total_s).to_json()
            for row, (calls, total_s) in zip(rows, times, strict=True)
        ],
        "complete": True,
        "limits": MultiprocessorLimits(
            multiprocessors=132,
            threads=2048,
            blocks=32,
            registers=65536,
            shared_bytes=233472,
            reserved_shared_bytes=1024,
        ).to_json(),
    }
    built = {"_Z13matvec_kernelPKfS0_Pfl": {"spill_stores_bytes": 0}}
    sources = KernelSources(built=built, spelled=frozenset(), extensions=True, may_bring=True)
    return dict(conclude(claimed, sources).evidence)


def test_the_kernels_that_ran_have_a_table() -> None:
    record = replace(RECORDS[0], evidence={**RECORDS[0].evidence, "census": taken_census()})
    page = rendered([record])
    table = page.split("<h2>Kernels of one call</h2>")[1].split("</table>")[0]
    texts = [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", table)]
    columns = texts[: texts.index("matvec_kernel(float const*)")]
    first, second, third = (texts[len(columns) * n : len(columns) * (n + 1)] for n in (1, 2, 3))
    assert columns[:7] == ["kernel", "owner", "launches", "time", "share", "grid", "block"]
    assert first[1:9] == ["own", "1", "1.90 ms", "95 %", "2048", "256", "37", "64 B"]
    assert second[5:9] == ["16 x 64 x 2", "128", "122", "16.0 KiB"]
    assert third[:6] == ["memset", "fill", "1", "2.00 µs", "below 0.1 %", "-"]
    assert any("&lt;b&gt;" in text for text in second)
    # The rest of it stands among the evidence, the rows only once.
    assert "own share" in page
    assert page.count("ampere_sgemm_128x64") == 1


def test_grouped_values_have_the_unit_of_their_group() -> None:
    timing = {"peak_memory_bytes": {"solution": 67110400}, "gpu_after_rounds": [{"throttle_reasons": 4}]}
    record = replace(RECORDS[0], evidence={"stages_s": {"load": 0.3485}}, timing=timing)
    text = read(rendered([record])).text
    for expected in ("load: 348 ms", "solution: 64.0 MiB", "throttle reasons: power cap (software)"):
        assert expected in text, expected


@pytest.mark.parametrize(
    "held", [None, 3, [], {"kernels": 3}, {"kernels": [3, {}]}, {"kernels": [{"grid": "x", "share": "y"}]}]
)
def test_a_census_of_another_version_does_no_harm(held: object) -> None:
    record = replace(RECORDS[0], evidence={**RECORDS[0].evidence, "census": held})
    assert record.solution in read(rendered([record])).text


def test_samples_are_dots_on_an_axis_of_time() -> None:
    drawn = samples([1e-3, 2e-3], [1e-3] * 7)
    assert drawn.count("h0") == 9
    assert samples([], []) == ""
    assert samples([1e-3], [1e-3] * 10_000).count("h0") <= 401
    ticks = re.findall(r">([\d.]+) (\w+)</text>", drawn)
    assert {unit for _, unit in ticks} == {"ms"}
    assert 2 <= len(ticks) <= 8
    assert [float(tick) for tick, _ in ticks] == sorted({float(tick) for tick, _ in ticks})
    # Samples that hardly differ, and such that differ a lot, have distinct ticks, too.
    for held in ([9.1e-4, 9.101e-4], [1e-6, 3e-1], [2e-3]):
        ticks = re.findall(r">([\d.e+-]+ \w+)</text>", samples(held, held))
        assert len(set(ticks)) == len(ticks) >= 2, held


class TestCommands:
    def test_a_report_shows_the_source_that_was_judged(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        source = "SOURCE = 'that was judged'\n"
        (tmp_path / "mine.py").write_text(source)
        run = tmp_path / "run"
        run.mkdir()
        held = {**RECORDS[0].to_json(), "solution_digest": digest_text(source)}
        (run / "records.jsonl").write_text(json.dumps(held) + "\n")
        out = tmp_path / "page.html"
        call = ["report", str(run), "--out", str(out), "--solutions", str(tmp_path), "--no-figures"]
        assert main([*call, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["records"] == 1
        assert "that was judged" in out.read_text()
        (tmp_path / "mine.py").write_text(source + "# edited since\n")
        assert main(call) == 0
        assert "that was judged" not in out.read_text()
        assert "The source was not found" in out.read_text()

    @NEEDS_MATPLOTLIB
    @pytest.mark.parametrize(("form", "magic"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
    def test_plot_writes_the_figures(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, magic: bytes
    ) -> None:
        assert main(["plot", str(RESULTS / "h200-examples"), "--out", str(tmp_path), "--format", form]) == 0
        written = sorted(tmp_path.iterdir())
        assert [path.name.split("-")[0] for path in written] == ["fast_p", "roofline", "speedups"]
        assert all(path.read_bytes().startswith(magic) for path in written)
        assert capsys.readouterr().out.split() == [
            str(path) for name in ("speedups", "fast_p", "roofline") for path in written if path.name.startswith(name)
        ]

    def test_two_runs_are_compared_without_being_asked(self, tmp_path: Path) -> None:
        runs = [str(RESULTS / f"h200-transcripts-{name}") for name in ("cold", "warm")]
        out = tmp_path / "page.html"
        assert main(["report", *runs, "--out", str(out), "--no-figures"]) == 0
        assert "From h200-transcripts-cold to h200-transcripts-warm" in out.read_text()
        assert main(["report", runs[1], "--base", runs[0], "--out", str(out), "--no-figures"]) == 0
        assert "From h200-transcripts-cold to h200-transcripts-warm" in out.read_text()

    def test_without_matplotlib_the_report_has_charts_and_plot_ends_with_3(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
        run, out = str(RESULTS / "h200-transcripts-cold"), tmp_path / "page.html"
        assert main(["report", run, "--out", str(out)]) == 0
        assert out.read_text().count("<figure>") == 3
        assert main(["report", run, "--out", str(out), "--no-figures"]) == 0
        assert "<figure>" not in out.read_text()
        assert main(["plot", run, "--out", str(tmp_path)]) == 3
        assert "pip install 'kernel-harness[plots]'" in capsys.readouterr().err

    def test_calls_that_can_t_work(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        run = str(RESULTS / "h200-transcripts-cold")
        assert main(["report", run, "--solutions", str(tmp_path / "nowhere")]) == 2
        assert "leave --solutions out" in capsys.readouterr().err
        assert main(["report", run, "--base", run, "--out", str(tmp_path / "page.html"), "--no-figures"]) == 2
        assert "is the only run" in capsys.readouterr().err
        assert main(["report", run, "--out", str(tmp_path), "--no-figures"]) == 2
        assert "can't be written" in capsys.readouterr().err
        empty = tmp_path / "empty"
        empty.mkdir()
        (empty / "records.jsonl").write_text("")
        assert main(["report", str(empty)]) == 2
        assert main(["plot", str(empty)]) == 2
        file = tmp_path / "file"
        file.write_text("")
        capsys.readouterr()
        assert main(["plot", str(RESULTS / "h200-examples"), "--out", str(file)]) == 2
        assert "; choose another folder" in capsys.readouterr().err


def test_a_run_without_any_timed_solution_has_a_page() -> None:
    record = Record(
        problem="level1/1",
        author="a",
        solution="a.py",
        device=DeviceKind.HOST,
        workload="small",
        status=Status.crashed,
        reason="it crashed",
    )
    assert "it crashed" in rendered([record], with_figures=True)
