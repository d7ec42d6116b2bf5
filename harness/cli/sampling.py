"""`harness prompt` and `harness generate`: prompts for a model, and its answers.

Trusted side. No code of an answer is executed here.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from harness.catalog import load_problems, transcripts
from harness.cli.completion import problem_ids
from harness.cli.output import NOT_FOUND, Json, ProblemsRoot, choice, fail, option, print_json, print_text, put, say
from harness.core.config import ConfigError

TEMPLATES = ("zero_shot", "one_example", "kernelbench")

Template = Annotated[str, choice("--template", TEMPLATES, "Layout of the prompt.  [zero_shot]")]
Gpu = Annotated[str | None, option("--gpu", "State facts of this GPU, from its datasheet, for example H200.  [none]")]


def prompt_command(
    problem: Annotated[
        str,
        typer.Argument(
            metavar="PROBLEM", help="Problem: its id, for example level1/16, or its file.", autocompletion=problem_ids
        ),
    ],
    template: Template = "zero_shot",
    gpu: Gpu = None,
    feedback: Annotated[
        Path | None,
        option(
            "--feedback", "Print the prompt of a further turn, with the feedback in this file; - is standard input."
        ),
    ] = None,
    problems: ProblemsRoot = None,
    as_json: Json = False,
) -> None:
    """Print the prompt that asks a model for a solution.

    The template kernelbench has the order of KernelBench's prompt; its words are other ones.

    \b
    Examples:
      harness prompt level1/19 --template one_example --gpu H200
      harness show last 19_relu --feedback | harness prompt level1/19 --feedback -
    """
    from harness.api.environments.prompts import feedback_prompt, prompt

    held = load_problems(problems or Path("problems"), problem).resolve(problem)
    if feedback is None:
        text = prompt(held, template=template, gpu=gpu)
    else:
        try:
            said = sys.stdin.read() if feedback == Path("-") else feedback.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"--feedback {feedback}: not UTF-8 text") from error
        text = feedback_prompt(said)
    if as_json:
        print_json({"problem": held.id, "prompt": text})
    else:
        print_text(text)


def generate_command(
    problem: Annotated[
        list[str],
        typer.Argument(metavar="PROBLEMS", help="Problems, for example level1/16.", autocompletion=problem_ids),
    ],
    model: Annotated[str, typer.Option("--model", help="Name of the model at the endpoint.")],
    samples: Annotated[int, typer.Option("--samples", help="Samples of each problem.")] = 1,
    base_url: Annotated[
        str | None,
        option(
            "--base-url", "Address of the endpoint, such as http://localhost:8000/v1.  [OPENAI_BASE_URL, or OpenAI]"
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for answers/ and solutions/.")] = Path("generated"),
    author: Annotated[str | None, option("--author", "Author of the solutions.  [the model's name]")] = None,
    template: Template = "zero_shot",
    gpu: Gpu = None,
    temperature: Annotated[float | None, option("--temperature", "Temperature.  [the endpoint's]")] = None,
    max_tokens: Annotated[int | None, option("--max-tokens", "Most tokens of an answer.  [the endpoint's]")] = None,
    parallel: Annotated[int, typer.Option("--parallel", help="Requests at once.")] = 4,
    retries: Annotated[int, typer.Option("--retries", help="Further tries of a request that fails.")] = 5,
    price: Annotated[
        str | None,
        option("--price", "Price of a million tokens of prompts and of answers, such as 2.5,10.  [no cost is shown]"),
    ] = None,
    problems: ProblemsRoot = None,
    as_json: Json = False,
) -> None:
    """Ask a model for solutions, through an OpenAI-compatible endpoint.

    Raw answers go to OUT/answers, solutions to OUT/solutions. The same command goes on after an interruption, and with
    more samples. The key is read from OPENAI_API_KEY and never written. The exit code is 1 if an answer holds no
    solution.

    \b
    Examples:
      harness generate level1/19 --model some-model --samples 4 --base-url http://localhost:8000/v1
      harness eval generated/solutions
    """
    from harness.api.environments.generate import generate, totals
    from harness.api.environments.prompts import prompt

    prices = _prices(price)
    catalog = load_problems(problems or Path("problems"), ",".join(problem))
    held = list({item.id: item for item in map(catalog.resolve, problem)}.values())
    answers = out / "answers"
    files = generate(
        [(item, prompt(item, template=template, gpu=gpu)) for item in held],
        answers,
        model=model,
        samples=samples,
        base_url=base_url,
        temperature=temperature,
        max_tokens=max_tokens,
        parallel=parallel,
        retries=retries,
        tell=say,
    )
    counts = totals(answers, prices)
    name = author or "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in model).lstrip("._-")
    placed = transcripts.place(files, catalog, problem=None, author=name or "model", out=out / "solutions", force=False)
    solutions = sum(item.path is not None for item in placed)
    if as_json:
        print_json({**asdict(counts), "solutions": [item.to_json() for item in placed]})
    else:
        told = [f"{counts.samples} answers, {solutions} solutions, {counts.cut_off} cut off"]
        told.append("tokens: not counted by the endpoint")
        if counts.prompt_tokens is not None:
            told[1] = f"tokens: {counts.prompt_tokens} in, {counts.completion_tokens} out"
        if counts.cost is not None:
            told.append(f"cost: {counts.cost:.4f}")
        put("; ".join(told))
    say(f"next: harness eval {out / 'solutions'}")
    if solutions < len(placed):
        fail(f"{len(placed) - solutions} of {len(placed)} answers hold no solution", NOT_FOUND)


def _prices(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        asked, given = (float(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigError(f"--price must be two numbers such as 2.5,10, not {text!r:.40}") from error
    if not (0 <= asked < float("inf") and 0 <= given < float("inf")):
        raise ConfigError(f"--price must be two numbers of at least 0, not {text!r:.40}")
    return asked, given
