"""The core of the environments, on the host device, and prompts."""

from __future__ import annotations

import re

import pytest

from harness import Harness, reward
from harness.api.environments import KernelEnvironment, prompt, score_answers
from harness.api.environments.prompts import TEMPLATES
from harness.catalog import CatalogError, load_problems
from harness.catalog.extract import extract
from harness.cli import sampling
from harness.core.config import ConfigError
from harness.core.status import Status
from tests.support.door_answers import RELU, answers, fenced
from tests.support.paths import ROOT

RIGHT, WRONG, NOTHING = fenced(RELU.format("return torch.relu(x)")), fenced(RELU.format("return x")), "I can't."


@pytest.fixture(scope="module")
def harness():
    with Harness(device="host", problems=ROOT / "problems") as made:
        yield made


def test_an_episode_pays_its_best_answer_once(harness):
    environment = KernelEnvironment(harness, turns=4)
    assert "class Model" in environment.reset("level1/19")
    steps = [environment.step(answer) for answer in (NOTHING, WRONG, WRONG, RIGHT)]
    assert [step.status for step in steps] == [
        *(Status.no_model_new, Status.wrong_value, Status.wrong_value, Status.passed)
    ]
    assert [step.done for step in steps] == [False, False, False, True]
    assert [step.gain for step in steps] == pytest.approx([0.0, 0.1, 0.0, steps[3].reward - 0.1])
    assert environment.total == pytest.approx(steps[3].reward)
    assert "fenced Python block" in steps[0].feedback
    with pytest.raises(RuntimeError, match="reset"):
        environment.step(RIGHT)
    environment.reset("level1/19")
    assert (environment.total, environment.done) == (0.0, False)


def test_a_right_answer_is_not_spoilt_by_a_later_one_and_may_be_improved(harness):
    environment = KernelEnvironment(harness, turns=2, until_passed=False)
    environment.reset("level1/19")
    first, second = environment.step(RIGHT), environment.step(WRONG)
    assert (first.done, second.done, second.gain) == (False, True, 0.0)
    assert environment.total == first.reward


def test_a_group_is_scored_as_each_answer_alone(harness):
    steps = score_answers(harness, ["level1/19"] * 3, [RIGHT, WRONG, NOTHING])
    assert [step.status for step in steps] == [Status.passed, Status.wrong_value, Status.no_model_new]
    alone = harness.evaluate("level1/19", extract(WRONG).source)
    assert steps[1].reward == reward(alone)
    with pytest.raises(ValueError, match="argument 2"):
        score_answers(harness, ["level1/19"], [RIGHT, WRONG])


def test_calls_that_make_no_sense_say_so(harness):
    with pytest.raises(ValueError, match="turns"):
        KernelEnvironment(harness, turns=0)
    with pytest.raises(RuntimeError, match="reset"):
        KernelEnvironment(harness).step(RIGHT)
    with pytest.raises(CatalogError, match="level1/999"):
        KernelEnvironment(harness).reset("level1/999")
    with pytest.raises(ConfigError, match="zero_shot"):
        KernelEnvironment(harness, template="none").reset("level1/19")


def test_the_command_offers_all_templates():
    assert sampling.TEMPLATES == TEMPLATES


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("wanted", ["level1/19", "level1/1"])
def test_a_prompt_shows_the_problem_and_never_its_solution(template, wanted):
    problem = load_problems(ROOT / "problems").resolve(wanted)
    text = prompt(problem, template=template, gpu="H200")
    assert text.count(problem.source.strip()) == 1
    assert "4.80 TB/s" in text
    assert "fp32 precision" in text
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert sum("class ModelNew" in block for block in blocks) == (0 if template == "zero_shot" else 1)
    assert len(blocks) == (1 if template == "zero_shot" else 3)


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_prompt_asks_for_the_backward_where_the_problem_does(template):
    catalog = load_problems(ROOT / "problems")
    assert "The gradients of the inputs and parameters are results, too" in prompt(
        catalog["backward/11"], template=template
    )
    assert "gradients" not in prompt(catalog["level1/19"], template=template)


def test_an_unknown_gpu_is_refused():
    with pytest.raises(ConfigError, match="H100"):
        prompt(load_problems(ROOT / "problems").resolve("level1/19"), gpu="Voodoo 2")


def test_there_are_fifty_answers_of_many_kinds():
    assert len(answers()) == 50
    assert len({problem for problem, _ in answers()}) > 8


def test_the_guides_code_runs(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    text = (ROOT / "harness" / "guides" / "environments.md").read_text(encoding="utf-8")
    code = text.split("```python\n", 1)[1].split("\n```\n\nAn environment", 1)[0]
    exec(compile(code, "environments.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == [
        *("no_model_new 0.0 False", "passed True True", "['passed', 'no_model_new']")
    ]
