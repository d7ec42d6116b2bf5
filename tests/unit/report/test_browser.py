"""The report's page in headless Chromium: it loads with no network and no complaint, sorts, filters, follows links,
by keyboard too, with ten records and with five thousand, with hostile ones, and without scripts."""

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
from harness.report import figures
from harness.report.feedback import feedback
from harness.report.html import Item, render
from harness.report.html.page import Changes
from harness.results.compare import compare_runs
from tests.support import browser
from tests.support.paths import ROOT, TESTS
from tests.unit.report.test_page import HOSTILE, attacking

FOUND = browser.find()

pytestmark = [
    pytest.mark.skipif(FOUND is None, reason=browser.ABSENT),
    pytest.mark.skipif(not figures.available(), reason="matplotlib (the extra `plots`) isn't installed"),
    # One browser serves the whole module.
    pytest.mark.xdist_group("browser"),
]

GOLDEN = TESTS / "golden" / "records" / "h200.jsonl"
TEN = [Record.from_json(json.loads(line)) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
SCREENSHOT = ROOT / "harness" / "guides" / "report.png"
"""The picture of the report in the README. `UPDATE_SCREENSHOT=1 pytest tests/unit/report/test_browser.py` writes it."""
SCREENSHOT_SIZE, SCREENSHOT_SCALE = (1200, 700), 5 / 6
SCREENSHOT_LIMIT_BYTES = 200_000
TABLE = "document.querySelector('table[id$=solution]')"


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
        f"(() => {{ const field = document.getElementById({TABLE}.id + '-filter'); field.value = {json.dumps(text)};"
        " field.dispatchEvent(new Event('input')); })()"
    )
    page.wait(f"{TABLE}.querySelector('.count').textContent === {json.dumps(shown)}")


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
    type_filter(page, "LOW_precision broken", "(2 of 10)")
    assert set(column(page, "status")) == {"low_precision"}
    type_filter(page, "nothing is called so", "(0 of 10)")
    type_filter(page, "", "(10)")
    assert len(column(page, "status")) == 10


def test_a_link_leads_to_a_solution_and_back(page: browser.Page, ten: Path) -> None:
    page.load(ten)
    wanted = "broken/level1/33_forgets_running_statistics.py"
    page.evaluate(f"[...{TABLE}.querySelectorAll('a')].find((a) => a.textContent === {json.dumps(wanted)}).click()")
    page.wait("document.querySelector('#shown h2') !== null")
    assert page.evaluate("document.querySelector('#shown h2').textContent") == wanted
    assert "Where state bn.running_mean differs" in page.evaluate("document.querySelector('#shown').innerText")
    assert page.evaluate("document.getElementById('overview').offsetHeight") == 0
    assert page.evaluate("document.activeElement.id") == "shown"
    page.evaluate("document.querySelector('#shown a.back').click()")
    page.wait("document.getElementById('overview').offsetHeight > 0")
    assert page.evaluate("document.querySelector('#shown').children.length") == 0


def test_an_address_with_a_solution_opens_it(page: browser.Page, ten: Path) -> None:
    page.load(ten, "#s4")
    assert page.evaluate("document.querySelector('#shown h2').textContent") == TEN[4].solution
    shown = page.evaluate("[...document.querySelectorAll('#shown pre')].map((pre) => pre.textContent).join('\\n')")
    assert f"# {TEN[4].solution}" in shown


def test_a_point_of_the_roofline_leads_to_its_solution(page: browser.Page, ten: Path) -> None:
    page.load(ten)
    links = page.evaluate("[...document.querySelectorAll('figure svg a')].map((a) => a.getAttribute('href'))")
    assert sorted(links) == sorted(f"#s{n}" for n, record in enumerate(TEN) if record.speedup is not None)
    page.evaluate("document.querySelector('figure svg a').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    page.wait("document.querySelector('#shown h2') !== null")
    number = int(links[0].removeprefix("#s"))
    assert page.evaluate("document.querySelector('#shown h2').textContent") == TEN[number].solution


def test_it_can_be_used_by_keyboard(page: browser.Page, ten: Path) -> None:
    page.load(ten)
    here = "(document.activeElement.closest('table')?.id ?? '') + ' ' + document.activeElement.textContent"
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
        if page.evaluate("document.activeElement.matches('table[id$=solution] tbody a')"):
            break
    wanted = page.evaluate("document.activeElement.textContent")
    page.press("Enter")
    page.wait("document.querySelector('#shown h2') !== null")
    assert page.evaluate("document.querySelector('#shown h2').textContent") == wanted
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
    page.wait("document.querySelector('#shown h2') !== null")


def test_hostile_records_do_nothing(page: browser.Page, tmp_path: Path) -> None:
    bad = [replace(attacking(record), author=f"{HOSTILE}{n}") for n, record in enumerate(TEN)]
    page.load(written(tmp_path, bad, before=bad, run=HOSTILE))
    assert page.evaluate("document.title") == "Results"
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert page.evaluate("document.querySelectorAll('script').length") == 1
    for number in range(len(bad)):
        page.evaluate(f"location.hash = '#s{number}'")
        page.wait(f"document.querySelector('#shown section')?.id === 's{number}'")
        assert page.evaluate("document.querySelectorAll('img, iframe, object, embed').length") == 0
        assert page.evaluate("document.querySelectorAll('script').length") == 1
    assert "alert(1)" in page.evaluate("document.querySelector('#shown').innerText")


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
        assert page.evaluate("document.querySelectorAll('th button, .tools').length") == 0
        assert page.evaluate("document.getElementById('overview').offsetHeight > 0")
        page.load(ten, "#s2")
        page.wait("document.getElementById('s2').offsetHeight > 0")
        assert page.evaluate("document.getElementById('overview').offsetHeight") == 0
        assert page.evaluate("document.getElementById('s3').offsetHeight") == 0
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
    assert len(column(page, "status")) == 5000
    press_heading(page, "speedup")
    keys = [float(key) for key in column(page, "speedup", "key") if key]
    assert len(keys) == sum(record.speedup is not None for record in many)
    assert keys == sorted(keys, reverse=True)
    wanted = sum(bool(re.search(r"author-7/", record.solution)) for record in many)
    type_filter(page, "author-7/", f"({wanted} of 5000)")
    page.evaluate("location.hash = '#s4321'")
    page.wait("document.querySelector('#shown h2') !== null")
    assert page.evaluate("document.querySelector('#shown h2').textContent") == many[4321].solution
    points = page.evaluate("document.querySelectorAll('figure svg a').length")
    assert points == sum(record.speedup is not None for record in many)


def assert_shows_a_page(png: bytes) -> None:
    """A PNG of `SCREENSHOT_SIZE` that is neither blank nor nearly so."""
    from matplotlib.image import imread

    pixels = imread(io.BytesIO(png), format="png")
    assert pixels.shape[:2] == SCREENSHOT_SIZE[::-1]
    dark = pixels[..., :3].mean(axis=2) < 0.5
    assert dark.any(axis=1).sum() > 150, "too few rows of the picture show anything"
    assert 0.005 < dark.mean() < 0.5


def test_screenshot_of_the_report(page: browser.Page, tmp_path: Path) -> None:
    lines = (ROOT / "results" / "h200-examples" / "records.jsonl").read_text(encoding="utf-8").splitlines()
    items = [Item(record=Record.from_json(json.loads(line)), run="h200-examples") for line in lines]
    path = tmp_path / "report.html"
    path.write_text(render(items, title="Kernel results", made_at="2026-11-21"), encoding="utf-8")
    page.load(path)
    png = page.screenshot(*SCREENSHOT_SIZE, SCREENSHOT_SCALE)
    assert_shows_a_page(png)
    if os.environ.get("UPDATE_SCREENSHOT"):
        SCREENSHOT.write_bytes(png)
    assert_shows_a_page(SCREENSHOT.read_bytes())
    assert SCREENSHOT.stat().st_size < SCREENSHOT_LIMIT_BYTES
