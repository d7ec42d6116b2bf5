"""The report's page and figures, without a browser: what is in it, what is escaped, what it may not do."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
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
from harness.report import figures
from harness.report.feedback import feedback
from harness.report.figures import points_of
from harness.report.html import Item, inline, render, strip
from harness.report.html.page import Changes
from harness.results.compare import compare_runs
from harness.results.scoring import entries_of
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
NEEDS_MATPLOTLIB = pytest.mark.skipif(not figures.available(), reason="matplotlib (the extra `plots`) isn't installed")


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
        sections = [held["id"] for held in reader.all("section") if held.get("class") == "solution"]
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
        assert {link for link in links if not (link.startswith("#") and link[1:] in ids)} == set()
        assert len({held["id"] for _, held in reader.tags if "id" in held}) == sum("id" in h for _, h in reader.tags)

    def test_every_solution_of_the_leaderboard_is_linked_to_its_own_record(self) -> None:
        page = rendered()
        for number, record in enumerate(RECORDS):
            assert re.search(rf'<a href="#s{number}">{re.escape(record.solution)}</a>', page)

    def test_host_and_gpu_stand_apart(self) -> None:
        headings = [text for text in read(rendered()).texts if text.startswith(("cuda: ", "host: "))]
        assert len({text.split(",")[0] for text in headings}) == 2

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
        assert [held["id"] for held in reader.all("table") if held.get("id") == "changes"] == ["changes"]

    def test_the_same_solution_on_two_gpus_is_linked_to_the_record_of_each(self) -> None:
        other = replace(RECORDS[0], environment={"gpu": "NVIDIA L4"}, finished_at=LATER)
        page = rendered([RECORDS[0], other])
        boards = page.split('<section class="group"')[1:]
        assert [re.findall(r'href="#(s\d)"', board.split("<noscript")[0]) for board in boards] == [["s0"], ["s1"]]

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


@pytest.mark.parametrize("with_figures", [False, pytest.param(True, marks=NEEDS_MATPLOTLIB)])
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
    assert page.count("<noscript") == page.count("</noscript>") == len(bad)
    assert "49" not in page.split("<title>")[1].split("</title>")[0]
    assert not set(page) & set("\x1b\u202e")


@NEEDS_MATPLOTLIB
class TestFigures:
    def test_every_timed_solution_is_a_point_of_the_roofline_and_leads_to_its_page(self) -> None:
        gpu = [record for record in RECORDS if record.device is DeviceKind.CUDA]
        points = points_of(gpu, links={id(record): f"#s{n}" for n, record in enumerate(gpu)})
        assert len(points) == sum(record.speedup is not None for record in gpu) > 0
        page = rendered(with_figures=True)
        svg = page.split('aria-label="Roofline', 1)[1].split("</svg>", 1)[0]
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

    def test_the_same_records_give_the_same_bytes(self) -> None:
        entries = entries_of(RECORDS)
        drawing = figures.drawings(entries[0].group, entries, points_of(RECORDS))[-1]
        for form in Form:
            assert figures.drawn(drawing, form.value) == figures.drawn(drawing, form.value)

    def test_a_formula_in_a_name_is_not_interpreted(self) -> None:
        name = "$\\frac{1}{$ _hidden"
        timed = [r for r in RECORDS if r.speedup]
        bad = [Record.from_json({**record.to_json(), "author": name}) for record in timed]
        entries = entries_of(bad)
        for drawing in figures.drawings(entries[0].group, entries, points_of(bad)):
            assert "frac{1}{$ _hidden" in figures.drawn(drawing, "svg").decode()

    def test_ids_of_two_figures_never_meet(self) -> None:
        entries = entries_of(RECORDS)
        data = [figures.drawn(d, "svg") for d in figures.drawings(entries[0].group, entries, points_of(RECORDS))]
        ids = [set(re.findall(r'\bid="([^"]+)"', inline(svg, f"f{n}-", "a"))) for n, svg in enumerate(data)]
        assert len(ids) == 3
        assert not ids[0] & ids[1] | ids[1] & ids[2] | ids[0] & ids[2]
        for n, svg in enumerate(data):
            held = inline(svg, f"f{n}-", "a")
            assert set(re.findall(r"url\(#([^)]+)\)", held)) <= ids[n]
            assert set(re.findall(r'<use[^>]* href="#([^"]+)"', held)) <= ids[n]

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
    table = page.split("<h3>Kernels of one call</h3>")[1].split("</table>")[0]
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


def test_a_strip_has_a_dot_for_every_sample() -> None:
    drawn = strip([1e-3, 2e-3], [1e-3] * 7)
    assert drawn.count("M") == 9
    assert strip([], []) == ""
    assert strip([1e-3], [1e-3] * 10_000).count("M") <= 401


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

    def test_without_matplotlib_the_report_says_so_and_plot_ends_with_3(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
        run, out = str(RESULTS / "h200-transcripts-cold"), tmp_path / "page.html"
        assert main(["report", run, "--out", str(out)]) == 0
        assert "pip install 'kernel-harness[plots]'" in capsys.readouterr().err
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
    assert "it crashed" in rendered([record], with_figures=figures.available())
