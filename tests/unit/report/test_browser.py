"""The report's page in headless Chromium: it loads with no network and no complaint, sorts, filters, follows links,
by keyboard too, with ten records and with five thousand, with hostile ones, without scripts, in both themes, on a
phone."""

from __future__ import annotations

import io
import json
import os
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.core.record import Record
from harness.core.status import Status
from harness.report import csv as report_csv
from harness.report.feedback import feedback
from harness.report.html import Changes, Item, render
from harness.results.compare import compare_runs
from harness.results.leaderboard import By, leaderboard
from tests.support import browser
from tests.support.paths import ROOT, TESTS
from tests.unit.report.test_page import HOSTILE, attacking

FOUND = browser.find()

pytestmark = [
    pytest.mark.skipif(FOUND is None, reason=browser.ABSENT),
    # One browser serves the whole module.
    pytest.mark.xdist_group("browser"),
]

GOLDEN = TESTS / "golden" / "records" / "h200.jsonl"
TEN = [Record.from_json(json.loads(line)) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
SCREENSHOT = ROOT / "harness" / "guides" / "report.png"
"""The picture of the report in the guides; `-dark` beside it shows the charts in the dark theme.

`UPDATE_SCREENSHOT=1 pytest tests/unit/report/test_browser.py` writes both.
"""
SCREENSHOT_SIZE, SCREENSHOT_SCALE = (1200, 800), 5 / 6
SCREENSHOT_LIMIT_BYTES = 300_000
PART = "document.querySelector('[id$=-solution]')"
TABLE = f"{PART}.querySelector('table')"
COUNT = f"{PART}.querySelector('.count').textContent"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Page]:
    assert FOUND is not None
    with browser.opened(FOUND, tmp_path_factory.mktemp("profile")) as held:
        yield held


@pytest.fixture(scope="module")
def ten(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of ten records, made once."""
    return written(tmp_path_factory.mktemp("ten"), TEN)


@pytest.fixture(autouse=True)
def nothing_is_complained_of_or_asked_for(page: browser.Page) -> Iterator[None]:
    page.console.clear()
    page.requests.clear()
    yield
    page.evaluate("1")
    assert page.console == []
    assert [address for address in page.requests if not address.startswith(("file:", "data:"))] == []
    assert len({address.split("#")[0] for address in page.requests if address.startswith("file:")}) <= 1


def written(folder: Path, records: Sequence[Record], *, before: Sequence[Record] = (), run: str = "run") -> Path:
    changes = Changes(before="before", after=run, found=compare_runs(before, records)) if before else None
    held = [Item(record=r, run=run, source=f"# {r.solution}", log=r.reason, feedback=feedback(r)) for r in records]
    path = folder / "report.html"
    path.write_text(render(held, title="Results", made_at="2026-01-31", changes=changes), encoding="utf-8")
    return path


def column(page: browser.Page, name: str, attribute: str = "textContent") -> list[str]:
    """A column of the table of solutions, as it is shown."""
    return list(
        page.evaluate(
            f"""(() => {{
              const table = {TABLE};
              const place = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent === {json.dumps(name)});
              return [...table.tBodies[0].rows].filter((row) => row.offsetHeight > 0).map((row) =>
                {json.dumps(attribute)} === "key" ? row.cells[place].dataset.key ?? "" : row.cells[place].textContent);
            }})()"""
        )
    )


def press_heading(page: browser.Page, name: str) -> None:
    page.evaluate(
        f"[...{TABLE}.tHead.rows[0].cells].find((cell) => cell.textContent === {json.dumps(name)})"
        ".querySelector('button').click()"
    )


def type_filter(page: browser.Page, text: str, shown: str) -> None:
    page.evaluate(
        f"(() => {{ const field = {PART}.querySelector('input'); field.value = {json.dumps(text)};"
        " field.dispatchEvent(new Event('input')); })()"
    )
    page.wait(f"{COUNT} === {json.dumps(shown)}")


def choose(page: browser.Page, name: str, value: str, shown: str) -> None:
    page.evaluate(
        f"(() => {{ const field = {PART}.querySelector('select[name={name}]'); field.value = {json.dumps(value)};"
        " field.dispatchEvent(new Event('change')); })()"
    )
    assert page.evaluate(COUNT) == shown


def test_it_sorts_by_number_and_by_name_with_what_is_absent_last(page: browser.Page, ten: Path) -> None:
    page.load(ten)
    press_heading(page, "speedup")
    keys = [float(key) for key in column(page, "speedup", "key") if key]
    assert len(keys) >= 3
    assert keys == sorted(keys, reverse=True)
    assert all(key == "" for key in column(page, "speedup", "key")[len(keys) :])
    press_heading(page, "speedup")
    assert column(page, "speedup", "key")[: len(keys)] == [repr(key) for key in sorted(keys)]
    sorted_by = f"[...{TABLE}.tHead.rows[0].cells].map((cell) => cell.getAttribute('aria-sort')).filter(Boolean)"
    assert page.evaluate(sorted_by) == ["ascending"]
    press_heading(page, "status")
    statuses = column(page, "status")
    assert statuses == sorted(statuses)


def test_it_filters_and_says_how_many_are_left(page: browser.Page, ten: Path) -> None:
    page.load(ten)
    type_filter(page, "LOW_precision broken", "2 of 10")
    assert set(column(page, "status")) == {"low_precision"}
    type_filter(page, "nothing is called so", "0 of 10")
    type_filter(page, "", "10")
    assert len(column(page, "status")) == 10


def test_selections_and_links_filter_and_the_address_keeps_them(page: browser.Page, ten: Path) -> None:
    page.load(ten)
    failed = [record for record in TEN if record.status is not Status.passed]
    assert page.evaluate("document.querySelector('.card.bad .big').textContent") == str(len(failed))
    choose(page, "status", "failed", f"{len(failed)} of 10")
    assert set(column(page, "status")) == {record.status.value for record in failed}
    author = failed[0].author
    own = [record for record in failed if record.author == author]
    choose(page, "author", author, f"{len(own)} of 10")
    address = page.evaluate("location.hash")
    page.send("Page.navigate", url="about:blank")
    page.load(ten, address)
    assert page.evaluate(COUNT) == f"{len(own)} of 10"
    reasons = "[...document.querySelectorAll('.reasons a')]"
    page.evaluate(f"{reasons}.find((a) => a.textContent.includes('low_precision')).click()")
    page.wait(f"{COUNT} === '2 of 10'")
    assert set(column(page, "status")) == {"low_precision"}
    page.evaluate("location.hash = '#s4'")
    page.wait("document.querySelector('#shown .facts') !== null")
    page.evaluate("[...document.querySelectorAll('#shown .facts a')].find((a) => a.href.includes('author')).click()")
    wanted = sum(record.author == TEN[4].author for record in TEN)
    page.wait(f"{COUNT} === '{wanted} of 10'")


def test_a_label_filters(page: browser.Page, tmp_path: Path) -> None:
    page.load(written(tmp_path, [replace(TEN[0], labels=("disturbed", "busy_host")), *TEN[1:]]))
    labelled = 1 + sum("disturbed" in record.labels for record in TEN[1:])
    choose(page, "label", "disturbed", f"{labelled} of 10")


def test_the_shown_rows_are_downloaded(page: browser.Page, ten: Path) -> None:
    page.load(ten)
    page.evaluate(
        "HTMLAnchorElement.prototype.click = function () { window.name = this.download; };"
        "URL.createObjectURL = (blob) => { window.given = blob; return '#'; }; 0"
    )
    choose(page, "status", "low_precision", "2 of 10")
    buttons = f"[...{PART}.querySelectorAll('.files button')]"
    got = {}
    for form in ("csv", "json"):
        page.evaluate(f"{buttons}.find((button) => button.textContent.endsWith('{form.upper()}')).click()")
        assert page.evaluate("window.name") == f"results.{form}"
        got[form] = page.evaluate("window.given.text()")
    rows = [row for row in leaderboard(TEN, by=By.solution) if row.status is Status.low_precision]
    assert got["csv"] == report_csv.leaderboard(rows)
    assert json.loads(got["json"]) == [row.to_json() for row in rows]


def test_a_problem_has_a_page(page: browser.Page, ten: Path) -> None:
    page.load(ten)
    problem = TEN[0].problem
    page.evaluate(f"[...{TABLE}.querySelectorAll('a')].find((a) => a.textContent === {json.dumps(problem)}).click()")
    page.wait("document.querySelector('#shown h1') !== null")
    assert page.evaluate("document.querySelector('#shown h1').textContent") == problem
    shown = page.evaluate("[...document.querySelectorAll('#shown tbody .long a')].map((a) => a.textContent)")
    assert sorted(shown) == sorted(record.solution for record in TEN if record.problem == problem)
    page.evaluate("document.querySelector('#shown tbody .long a').click()")
    page.wait("document.querySelector('#shown section.solution') !== null")


SOURCE = """import torch  # <b>not bold</b>
CUDA = r'''
#include <torch/extension.h>
__global__ void half_of(float* x) { x[threadIdx.x] = 0.5f; }  // </span><img src=x>
/* two
int lines */
'''
NAME = 'text'
"""


def test_a_source_has_colours_and_findings_at_their_lines(page: browser.Page, tmp_path: Path) -> None:
    (refused,) = [record for record in TEN if record.status is Status.compile_error]
    error = {"error": {"solution_line": 4, "message": "<i>no such name</i>"}}
    item = Item(record=replace(refused, evidence=error), run="r", source=SOURCE)
    path = tmp_path / "report.html"
    path.write_text(render([item], title="t", made_at="now"), encoding="utf-8")
    page.load(path, "#s0")
    pieces = {
        kind: page.evaluate(f"[...document.querySelectorAll('.source .{kind}')].map((one) => one.textContent)")
        for kind in ("comment", "string", "word", "number", "finding")
    }
    assert pieces["comment"] == ["# <b>not bold</b>", "// </span><img src=x>", "/* two", "int lines */"]
    assert "'text'" in pieces["string"]
    assert {"import", "#include", "__global__", "void", "float", "threadIdx"} <= set(pieces["word"])
    assert pieces["number"] == ["0.5f"]
    assert pieces["finding"] == ["<i>no such name</i>"]
    assert page.evaluate("document.querySelector('.source .wrong').textContent").startswith("__global__ void half_of")
    page.evaluate("document.querySelector('.finding').remove()")
    assert page.evaluate("document.querySelector('pre.source').textContent") == SOURCE
    assert page.evaluate("document.querySelectorAll('#shown img, #shown b, #shown i').length") == 0


def test_a_mark_of_a_chart_shows_its_text_and_the_legend_its_author(page: browser.Page, ten: Path) -> None:
    page.load(ten)
    page.evaluate("document.querySelector('.chart a circle').dispatchEvent(new Event('pointerover', {bubbles: true}))")
    assert any(record.solution in page.evaluate("document.getElementById('hint').textContent") for record in TEN)
    page.evaluate("document.querySelector('h1').dispatchEvent(new Event('pointerover', {bubbles: true}))")
    assert page.evaluate("document.getElementById('hint').offsetHeight") == 0
    page.evaluate("document.querySelector('.legend button').click()")
    assert page.evaluate("document.querySelectorAll('.series.dim').length") > 0
    assert page.evaluate("document.querySelectorAll('.series.c0.dim').length") == 0
    page.evaluate("document.querySelector('.legend button').click()")
    assert page.evaluate("document.querySelectorAll('.series.dim').length") == 0


@pytest.mark.parametrize("width", [375, 900, 1440])
def test_no_page_scrolls_sideways(page: browser.Page, tmp_path: Path, width: int) -> None:
    long = replace(TEN[0], author="a" * 90, solution="a" * 90 + "/level1/" + "long_name" * 20 + ".py", reason="x" * 300)
    path = written(tmp_path, [long, *TEN[1:]], before=TEN, run="r" * 100)
    page.send("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 500)
    try:
        for fragment in ("", "#p0", "#p1", "#s0", "#s1", "#s5", "#changed"):
            page.load(path, fragment)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, fragment
    finally:
        page.send("Emulation.clearDeviceMetricsOverride")


def test_it_follows_the_theme_of_the_system(page: browser.Page, ten: Path) -> None:
    ground = {}
    for scheme in ("light", "dark"):
        page.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        page.load(ten)
        ground[scheme] = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    page.send("Emulation.setEmulatedMedia", features=[])
    assert ground["light"] == "rgb(255, 255, 255)"
    assert max(map(int, re.findall(r"\d+", ground["dark"]))) < 40


def test_a_link_leads_to_a_solution_and_back(page: browser.Page, ten: Path) -> None:
    page.load(ten)
    wanted = "broken/level1/33_forgets_running_statistics.py"
    page.evaluate(f"[...{TABLE}.querySelectorAll('a')].find((a) => a.textContent === {json.dumps(wanted)}).click()")
    page.wait("document.querySelector('#shown h1') !== null")
    assert page.evaluate("document.querySelector('#shown h1').textContent") == wanted
    assert "Where state bn.running_mean differs" in page.evaluate("document.querySelector('#shown').innerText")
    assert page.evaluate("document.getElementById('overview').offsetHeight") == 0
    assert page.evaluate("document.activeElement.id") == "shown"
    page.evaluate("document.querySelector('#shown a.back').click()")
    page.wait("document.getElementById('overview').offsetHeight > 0")
    assert page.evaluate("document.querySelector('#shown').children.length") == 0


def test_an_address_with_a_solution_opens_it(page: browser.Page, ten: Path) -> None:
    page.load(ten, "#s4")
    assert page.evaluate("document.querySelector('#shown h1').textContent") == TEN[4].solution
    shown = page.evaluate("[...document.querySelectorAll('#shown pre')].map((pre) => pre.textContent).join('\\n')")
    assert f"# {TEN[4].solution}" in shown


def test_a_point_of_the_roofline_leads_to_its_solution(page: browser.Page, ten: Path) -> None:
    page.load(ten)
    roofline = "[...document.querySelectorAll('figure')].find((one) => one.textContent.includes('Roofline'))"
    links = page.evaluate(f"[...{roofline}.querySelectorAll('svg a')].map((a) => a.getAttribute('href'))")
    assert sorted(links) == sorted(f"#s{n}" for n, record in enumerate(TEN) if record.speedup is not None)
    page.evaluate(f"{roofline}.querySelector('svg a').dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
    page.wait("document.querySelector('#shown h1') !== null")
    number = int(links[0].removeprefix("#s"))
    assert page.evaluate("document.querySelector('#shown h1').textContent") == TEN[number].solution


def test_it_can_be_used_by_keyboard(page: browser.Page, ten: Path) -> None:
    page.load(ten)
    here = "(document.activeElement.closest('.part')?.id ?? '') + ' ' + document.activeElement.textContent"
    for _ in range(200):
        page.press("Tab")
        held = page.evaluate(here)
        if held.endswith("-solution speedup"):
            break
    else:
        pytest.fail("the tab key never reached the heading of the speedups")
    page.press("Enter")
    keys = [float(key) for key in column(page, "speedup", "key") if key]
    assert keys == sorted(keys, reverse=True)
    for _ in range(200):
        page.press("Tab")
        if page.evaluate("document.activeElement.matches('[id$=-solution] tbody .long a')"):
            break
    wanted = page.evaluate("document.activeElement.textContent")
    page.press("Enter")
    page.wait("document.querySelector('#shown h1') !== null")
    assert page.evaluate("document.querySelector('#shown h1').textContent") == wanted
    page.press("Tab")
    assert page.evaluate("document.activeElement.className") == "back"


def halved(timing: Mapping[str, Any]) -> dict[str, Any]:
    """The timing of a solution that takes twice as long."""
    solution = dict(timing["solution"])
    solution["samples_s"] = [[2 * value for value in burst] for burst in solution["samples_s"]]
    return {**timing, "solution": solution}


def test_what_changed_between_two_runs(page: browser.Page, tmp_path: Path) -> None:
    slower = [replace(r, speedup=r.speedup / 2, timing=halved(r.timing or {})) if r.speedup else r for r in TEN]
    page.load(written(tmp_path, slower, before=TEN))
    text = page.evaluate("document.getElementById('changed').innerText")
    assert "From before to run" in text
    assert "slower" in text
    page.evaluate("document.querySelector('#changes tbody a').click()")
    page.wait("document.querySelector('#shown h1') !== null")


def test_hostile_records_do_nothing(page: browser.Page, tmp_path: Path) -> None:
    bad = [replace(attacking(record), author=f"{n}{HOSTILE}") for n, record in enumerate(TEN)]
    page.load(written(tmp_path, bad, before=bad, run=HOSTILE))
    assert page.evaluate("document.title") == "Results"
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert page.evaluate("document.querySelectorAll('script').length") == 1
    for name in ("p0", *(f"s{number}" for number in range(len(bad)))):
        page.evaluate(f"location.hash = '#{name}'")
        page.wait(f"document.querySelector('#shown section')?.id === '{name}'")
        assert page.evaluate("document.querySelectorAll('img, iframe, object, embed').length") == 0
        assert page.evaluate("document.querySelectorAll('script').length") == 1
    assert "alert(1)" in page.evaluate("document.querySelector('#shown').innerText")
    page.evaluate("location.hash = ''")
    authors = page.evaluate(
        "(() => { const selects = [...document.querySelectorAll('select[name=author]')];"
        " return selects.flatMap((select) => [...select.options].map((option) => {"
        " select.value = option.value; select.dispatchEvent(new Event('change'));"
        " return select.closest('.part').querySelectorAll('tbody tr').length; })); })()"
    )
    assert authors.count(1) == len(bad), "every author can be chosen alone"
    page.evaluate("document.querySelector('.chart a').dispatchEvent(new Event('pointerover', {bubbles: true}))")
    assert "alert(1)" in page.evaluate("document.getElementById('hint').textContent")
    assert page.evaluate("document.querySelectorAll('img, iframe, object, embed').length") == 0


def test_script_that_got_in_would_not_run(page: browser.Page, ten: Path, tmp_path: Path) -> None:
    """The policy is the second wall: were a text ever left unescaped, it could do nothing."""
    path = tmp_path / "report.html"
    broken_in = "<img src=x onerror='window.got=1'><script>window.got=1</script><h1"
    path.write_text(ten.read_text(encoding="utf-8").replace("<h1", broken_in, 1), encoding="utf-8")
    page.load(path)
    assert page.evaluate("window.got === undefined")
    assert any("Content Security Policy" in said for said in page.console), "the browser says that it refused"
    page.console.clear()
    page.requests.clear()


def test_without_scripts_everything_can_be_read(page: browser.Page, ten: Path) -> None:
    page.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page.load(ten)
        assert page.evaluate("document.querySelectorAll('button, .tools, select').length") == 0
        assert page.evaluate(f"[...{TABLE}.tBodies[0].rows].every((row) => row.offsetHeight > 0)")
        assert page.evaluate("document.querySelector('template').offsetHeight") == 0
        assert page.evaluate("document.getElementById('overview').offsetHeight > 0")
        page.load(ten, "#s2")
        page.wait("document.getElementById('s2').offsetHeight > 0")
        assert page.evaluate("document.getElementById('overview').offsetHeight") == 0
        assert page.evaluate("document.getElementById('s3').offsetHeight") == 0
        page.load(ten, "#p1")
        page.wait("document.getElementById('p1').offsetHeight > 0")
        assert page.evaluate("document.getElementById('overview').offsetHeight") == 0
    finally:
        page.send("Emulation.setScriptExecutionDisabled", value=False)


def test_it_prints_tables_and_figures_without_controls(page: browser.Page, ten: Path) -> None:
    page.load(ten)
    page.send("Emulation.setEmulatedMedia", media="print")
    try:
        assert page.evaluate("document.querySelector('.tools').offsetHeight") == 0
        assert page.evaluate("document.querySelector('figure svg').getBoundingClientRect().height") > 50
        assert len(page.send("Page.printToPDF")["data"]) > 10_000
    finally:
        page.send("Emulation.setEmulatedMedia", media="")


def test_five_thousand_records(page: browser.Page, tmp_path: Path) -> None:
    draw = random.Random(1)
    many = [
        replace(
            TEN[n % len(TEN)],
            author=f"author-{n % 23}",
            problem=f"level1/{n % 100}",
            solution=f"author-{n % 23}/level1/{n % 100}_sample{n}.py",
            problem_digest=str(n % 100),
            speedup=draw.lognormvariate(0, 1) if TEN[n % len(TEN)].speedup else None,
            # What belongs to one record is tested with ten; here their number is what matters.
            evidence={},
            environment={"gpu": "NVIDIA H200"},
            timing={key: held[key] for key in ("speedup", "speed_of_light")}
            if (held := TEN[n % len(TEN)].timing)
            else None,
        )
        for n in range(5000)
    ]
    page.load(written(tmp_path, many))
    assert len(column(page, "status")) == 100
    page.evaluate(f"{PART}.querySelector('.more').click()")
    assert len(column(page, "status")) == 5000
    assert page.evaluate(f"{PART}.querySelector('.more').hidden")
    press_heading(page, "speedup")
    keys = [float(key) for key in column(page, "speedup", "key") if key]
    assert len(keys) == sum(record.speedup is not None for record in many)
    assert keys == sorted(keys, reverse=True)
    wanted = sum(bool(re.search(r"author-7/", record.solution)) for record in many)
    type_filter(page, "author-7/", f"{wanted} of 5000")
    page.evaluate("location.hash = '#s4321'")
    page.wait("document.querySelector('#shown h1') !== null")
    assert page.evaluate("document.querySelector('#shown h1').textContent") == many[4321].solution
    points = page.evaluate("document.querySelectorAll('figure svg a').length")
    assert points == 2 * sum(record.speedup is not None for record in many), "speedups and roofline"


def assert_shows_a_page(png: bytes, scheme: str) -> None:
    """A PNG of `SCREENSHOT_SIZE` in a theme that is neither blank nor nearly so."""
    pytest.importorskip("matplotlib", reason="matplotlib (the extra `plots`) isn't installed")
    from matplotlib.image import imread

    pixels = imread(io.BytesIO(png), format="png")
    assert pixels.shape[:2] == SCREENSHOT_SIZE[::-1]
    bright = pixels[..., :3].mean(axis=2) >= 0.5
    drawn = bright if scheme == "dark" else ~bright
    assert drawn.any(axis=1).sum() > 150, "too few rows of the picture show anything"
    assert 0.005 < drawn.mean() < 0.5


@pytest.mark.parametrize(("scheme", "top"), [("light", "body"), ("dark", ".figures")])
def test_screenshot_of_the_report(page: browser.Page, tmp_path: Path, scheme: str, top: str) -> None:
    lines = (ROOT / "results" / "h200-examples" / "records.jsonl").read_text(encoding="utf-8").splitlines()
    items = [Item(record=Record.from_json(json.loads(line)), run="h200-examples") for line in lines]
    path = tmp_path / "report.html"
    path.write_text(render(items, title="Kernel results", made_at="2026-11-21"), encoding="utf-8")
    page.load(path)
    png = page.screenshot(*SCREENSHOT_SIZE, SCREENSHOT_SCALE, scheme=scheme, top=top)
    kept = SCREENSHOT if scheme == "light" else SCREENSHOT.with_stem("report-dark")
    assert_shows_a_page(png, scheme)
    if os.environ.get("UPDATE_SCREENSHOT"):
        kept.write_bytes(png)
    assert_shows_a_page(kept.read_bytes(), scheme)
    assert kept.stat().st_size < SCREENSHOT_LIMIT_BYTES
