"""Ask a model behind an OpenAI-compatible endpoint for samples.

Trusted side. A folder holds `settings.json`, and for each sample `level_1_problem_19_sample_0.json` (the response as it
came, with its counts) and `.txt` (its text, which `harness extract` takes). The `.txt` is written last and atomically:
if it is there, the sample is whole. The key comes from the environment and is never written.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness.core.atomic_file import replace_whole
from harness.core.config import ConfigError
from harness.core.environment import MachineError
from harness.core.problem import Problem

KEY = "OPENAI_API_KEY"
"""Variable of the environment that holds the key."""

NO_OPENAI = "samples need the package openai: pip install 'kernel-harness[generate]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """What the samples of one folder have in common.

    Attributes:
        model: Name of the model.
        base_url: Address of the endpoint; None means the client's default.
        temperature, max_tokens: As the endpoint takes them; None leaves them out.
        prompts: Problem -> SHA-256 of its prompt.
    """

    model: str
    base_url: str | None
    temperature: float | None
    max_tokens: int | None
    prompts: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counts over all samples of a folder; None: the endpoint does not count."""

    samples: int
    cut_off: int
    prompt_tokens: int | None
    completion_tokens: int | None
    cost: float | None


def file_of(problem: Problem, sample: int) -> str:
    """Return the name of a sample's file, without suffix."""
    level, _, number = problem.id.partition("/")
    return f"level_{level.removeprefix('level')}_problem_{number}_sample_{sample}"


def generate(
    prompts: Sequence[tuple[Problem, str]],
    folder: Path,
    *,
    model: str,
    samples: int,
    base_url: str | None = None,
    temperature: float | None = None,
    max_tokens: int | None = None,
    parallel: int = 4,
    retries: int = 5,
    timeout_s: float = 600.0,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Make the samples that the folder does not hold yet.

    Requests that fail by 408, 409, 429, 5xx or the connection are tried again, after growing pauses or as the endpoint
    says. If one fails for good, those under way are still kept.

    Args:
        prompts: Problems with their prompts.
        folder: Where answers go; made if it is missing.
        model: Name of the model.
        samples: Samples of each problem.
        base_url: Address of the endpoint, such as http://localhost:8000/v1; None means the client's default.
        temperature: Sent if given.
        max_tokens: Most tokens of an answer; sent if given.
        parallel: Requests at once.
        retries: Further tries of a request.
        timeout_s: Most seconds of one try.
        tell: Called with a line for each new sample.

    Returns:
        The text files of all samples.

    Raises:
        ConfigError: A setting is invalid, the folder was made with others, or the endpoint refuses the request.
        MachineError: The package `openai` is missing, or the endpoint can't be reached or fails.
        OSError: The folder can't be written.
    """
    if min(samples, parallel) < 1 or retries < 0:
        raise ConfigError("samples and parallel must be at least 1, retries at least 0")
    try:
        import openai
    except ImportError as error:
        raise MachineError(NO_OPENAI) from error
    address = base_url or os.environ.get("OPENAI_BASE_URL") or None
    _check_address(address)
    key = os.environ.get(KEY) or ("none" if address else "")
    if not key:
        raise ConfigError(f"{KEY} is not set; set it, or pass --base-url for an endpoint that needs no key")
    digests = {problem.id: hashlib.sha256(text.encode()).hexdigest() for problem, text in prompts}
    _continue(
        folder, Sampling(model=model, base_url=address, temperature=temperature, max_tokens=max_tokens, prompts=digests)
    )
    wanted = [(problem, text, number) for number in range(samples) for problem, text in prompts]
    missing = [item for item in wanted if _kept(folder / f"{file_of(item[0], item[2])}.txt") is None]
    if missing:
        client = openai.OpenAI(api_key=key, base_url=address, max_retries=retries, timeout=timeout_s)
        options = {
            name: value
            for name, value in (("temperature", temperature), ("max_tokens", max_tokens))
            if value is not None
        }

        def ask(text: str) -> Any:
            return client.chat.completions.create(model=model, messages=[{"role": "user", "content": text}], **options)

        with client, ThreadPoolExecutor(parallel) as pool, ExitStack() as stack:
            futures = {pool.submit(ask, text): (problem, number) for problem, text, number in missing}
            failure: Exception | None = None
            # After a failure or Ctrl-C, requests that still wait must not be sent: each costs money.
            stack.callback(pool.shutdown, wait=False, cancel_futures=True)
            for future in as_completed(futures):
                if future.cancelled():
                    continue
                problem, number = futures[future]
                name = file_of(problem, number)
                try:
                    response = future.result()
                    _keep(folder, name, response)
                    tell(f"{problem.id} sample {number}: {response.choices[0].finish_reason}")
                except (openai.OpenAIError, ValueError) as error:
                    if failure is None:
                        failure = _explained(openai, error, name, address, key)
                    for other in futures:
                        other.cancel()
            if failure is not None:
                raise failure
    return [folder / f"{file_of(problem, number)}.txt" for problem, _, number in wanted]


def totals(folder: Path, price: tuple[float, float] | None = None) -> Totals:
    """Count the samples of a folder.

    Args:
        folder: A folder of `generate`.
        price: Price of a million tokens of prompts and of answers; None leaves the cost out.

    Raises:
        OSError: A file can't be read.
    """
    count = cut = 0
    tokens: list[tuple[int, int] | None] = []
    for path in sorted(folder.glob("level_*_sample_*.txt")):
        body = _kept(path)
        if body is None:
            continue
        count += 1
        cut += body["choices"][0].get("finish_reason") == "length"
        usage = body.get("usage")
        tokens.append(None if not usage else (usage["prompt_tokens"], usage["completion_tokens"]))
    known = [pair for pair in tokens if pair is not None]
    complete = len(known) == len(tokens)
    asked, given = (sum(pair[0] for pair in known), sum(pair[1] for pair in known))
    cost = (asked * price[0] + given * price[1]) / 1e6 if price is not None and complete else None
    return Totals(
        samples=count,
        cut_off=cut,
        prompt_tokens=asked if complete else None,
        completion_tokens=given if complete else None,
        cost=cost,
    )


def _kept(path: Path) -> Any:
    """Return the response of a sample if text and response are whole."""
    try:
        return json.loads(path.with_suffix(".json").read_text(encoding="utf-8")) if path.is_file() else None
    except (FileNotFoundError, ValueError):
        return None


def _keep(folder: Path, name: str, response: Any) -> None:
    """Write a response, in one thread: drafts are named after the process."""
    if not getattr(response, "choices", None):
        raise ValueError("the response has no choices")
    text = response.choices[0].message.content or ""
    replace_whole(folder / f"{name}.json", response.model_dump_json(indent=1).encode("utf-8", "replace"))
    replace_whole(folder / f"{name}.txt", text.encode("utf-8", "replace"))


def _continue(folder: Path, sampling: Sampling) -> None:
    """Write the settings, or check that the folder has the same ones."""
    path = folder / "settings.json"
    mine = asdict(sampling)
    if path.exists():
        try:
            theirs = json.loads(path.read_text(encoding="utf-8"))
            differing = [key for key in mine if key != "prompts" and theirs[key] != mine[key]]
            changed = [key for key, digest in theirs["prompts"].items() if mine["prompts"].get(key, digest) != digest]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{path}: damaged; name another folder by --out") from error
        if differing:
            told = ", ".join(f"{key} was {theirs[key]!r}, now {mine[key]!r}" for key in differing)
            raise ConfigError(f"{folder} was made with other settings ({told}); name another folder by --out")
        if changed:
            told = ", ".join(changed[:5])
            raise ConfigError(f"{folder} was made with another prompt for {told}; name another folder by --out")
        mine["prompts"] = {**theirs["prompts"], **mine["prompts"]}
    replace_whole(path, json.dumps(mine, indent=1).encode())


def _check_address(address: str | None) -> None:
    """Refuse an address that is none or holds a secret: it is written down."""
    if address is None:
        return
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"--base-url must be an address such as http://localhost:8000/v1, not {address!r:.80}")
    if parts.username or parts.password or parts.query:
        raise ConfigError(f"--base-url must hold no user, password or query: put the key into {KEY}")


def _explained(openai: Any, error: Exception, name: str, address: str | None, key: str) -> Exception:
    """Return the error for the user, without the key, which some endpoints repeat."""
    said = str(error).replace(key, "***") if len(key) > 8 else str(error)
    again = "what arrived is kept: run the same command again to go on"
    where = address or "the endpoint"
    if isinstance(error, openai.APIConnectionError):
        return MachineError(f"{name}: {where} can't be reached ({said:.200}); {again}")
    if (
        isinstance(error, openai.APIStatusError)
        and error.status_code < 500
        and error.status_code not in (408, 409, 429)
    ):
        return ConfigError(f"{name}: {where} refuses the request ({said:.300})")
    return MachineError(f"{name}: {where} failed ({said:.300}); {again}")
