"""Consoles, JSON, error messages, exit codes and options that all commands share.

Trusted side. Results go to standard output, messages and progress to standard error.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import json
import os
import secrets
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec, TextIO

import typer

from harness.catalog import CatalogError, UnreadableProblem
from harness.cli.completion import one_of_words
from harness.core.atomic_file import FULL_OR_BROKEN
from harness.core.cache_dir import kind_of
from harness.core.config import KEYS, ConfigError
from harness.core.config_values import one_of
from harness.core.environment import MachineError
from harness.report.format import block
from harness.report.wrap import wrapped
from harness.results.reader import DamagedRecord, StoreError, StoreUnavailable
from harness.results.writer import RunStore

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

NOT_FOUND, WRONG_CALL, UNABLE, INTERRUPTED = 1, 2, 3, 130
"""Exit codes: nothing found or a gate failed, wrong arguments, the machine or the harness failed, Ctrl-C."""

STANDARD_OUTPUT = "standard output"
"""Name of standard output in messages."""

PIPED_WIDTH = 200
"""Columns of tables that do not go to a terminal."""

OF_THE_MACHINE = FULL_OR_BROKEN | {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ESTALE, errno.ETXTBSY),
}
"""Errors of the operating system that the harness can't prevent: reported without a traceback."""

P = ParamSpec("P")

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
DEVICES = KEYS["device"].choices
"""What `--device` takes."""
ProblemsRoot = Annotated[
    Path | None, typer.Option("--problems", help="Folder that holds the problems.  [problems]", show_default=False)
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="YAML file with settings; options of the command line override it.  [none]",
        show_default=False,
    ),
]


def option(name: str, text: str, *, complete: Callable[..., list[str]] | None = None) -> Any:
    """Declare an option whose default is set elsewhere; its help names the default."""
    return typer.Option(name, help=text, show_default=False, autocompletion=complete)


def choice(name: str, words: Sequence[str], text: str, *, shown: bool = True) -> Any:
    """Declare an option with fixed words, which help shows and shells complete."""
    return typer.Option(
        name,
        help=text,
        show_default=False,
        metavar=f"<{'|'.join(words)}>" if shown else None,
        autocompletion=one_of_words(words),
    )


def chosen(name: str, value: str, words: Sequence[str]) -> str:
    """Return the value of an option that `choice` declared.

    Raises:
        ConfigError: It is none of `words`.
    """
    try:
        return one_of(*words)(value)
    except ValueError as error:
        raise ConfigError(f"{name} must be {error}, not {value!r:.40}") from None


def console(*, stderr: bool = False) -> Console:
    """Make a console for escaped text: no markup, no emoji codes, no highlighting."""
    from rich.console import Console  # imported here: eval starts its referees before it prints

    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = PIPED_WIDTH
    return made


def put(*parts: RenderableType) -> None:
    """Print results to standard output."""
    out = console()
    with to_standard_output(), out.capture() as held:
        for part in parts:
            out.print(part, soft_wrap=isinstance(part, str))
    # Tables are padded with spaces to their width: remove these from files.
    text = held.get()
    print_text(text if out.is_terminal else "".join(f"{line.rstrip()}\n" for line in text.split("\n")[:-1]))


def print_json(value: Any) -> None:
    """Print one JSON document to standard output."""
    print_text(json.dumps(value, indent=2, allow_nan=False) + "\n")


def print_text(text: str) -> None:
    """Print text unchanged to standard output."""
    with to_standard_output():
        sys.stdout.write(text)


def print_wrapped(text: str) -> None:
    """Print text to standard output, on a terminal wrapped at words."""
    out = console()
    print_text(wrapped(text, out.width) if out.is_terminal else text)


def flush_results() -> None:
    """Flush standard output."""
    with to_standard_output():
        sys.stdout.flush()


@contextmanager
def to_standard_output() -> Iterator[None]:
    """Set standard output as the file name of errors within the block."""
    try:
        yield
    except OSError as error:
        error.filename = STANDARD_OUTPUT
        raise


def say(message: str) -> None:
    """Print an escaped message to standard error: file names may be hostile.

    If standard error can't be written, the message is lost; the exit code still tells the result.
    """
    try:
        sys.stderr.write(f"{_for_terminal(block(message))}\n")
        sys.stderr.flush()
    except OSError:
        _lead_nowhere(sys.stderr)


def _for_terminal(text: str) -> str:
    """Wrap a message at words if standard error is a terminal."""
    if not sys.stderr.isatty():
        return text
    # Without rich, whose import would delay the first message.
    with suppress(OSError, ValueError):
        return wrapped(text, int(os.environ.get("COLUMNS") or os.get_terminal_size(sys.stderr.fileno()).columns))
    return text


def opened(folder: Path) -> RunStore:
    """Open the run in `folder` for reading, and print notes about its defects.

    Raises:
        StoreError: The folder holds no run, or its files can't be read.
    """
    store = RunStore.open(folder)
    for note in store.notes:
        say(f"{folder}: {note}")
    return store


def fail(message: str, code: int) -> NoReturn:
    """Print a message and exit with a code."""
    say(f"harness: {message}")
    raise typer.Exit(code)


@contextmanager
def results_alone() -> Iterator[None]:
    """Send all output of the block, for example of a problem, to standard error.

    Standard output then holds only results.
    """
    flush_results()
    held = os.dup(1)
    try:
        os.dup2(2, 1)  # also for compiled code and other programs
        with redirect_stdout(sys.stderr):
            yield
    finally:
        ctypes.CDLL(None).fflush(None)  # C's printf buffers its output
        os.dup2(held, 1)
        os.close(held)


def in_actions() -> bool:
    """Return whether GitHub Actions reads the output."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


@contextmanager
def no_commands_in_output(*, on: bool) -> Iterator[None]:
    """Switch off GitHub's workflow commands in the output of the block.

    The block prints text of a submission.
    """
    if not on:
        yield
        return
    token = secrets.token_hex(16)
    print_text(f"::stop-commands::{token}\n")
    flush_results()
    try:
        yield
    finally:
        print_text(f"::{token}::\n")


def one_form(asked: Mapping[str, bool]) -> None:
    """Check that at most one option that sets the form of standard output was given.

    Args:
        asked: Option -> whether it was given.

    Raises:
        ConfigError: Two or more were given.
    """
    given = [name for name, yes in asked.items() if yes]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)}: standard output takes only one of them; leave the others out")


def writable(path: Path, option: str) -> Path:
    """Check before long work that a file can be written, and make its folder.

    Raises:
        ConfigError: The file can't be written.
        MachineError: The disk is full or broken.
    """
    there = path.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab"):
            pass
        if not there:
            path.resolve().unlink()  # resolved, so that a link whose target does not exist yet stays
    except OSError as error:
        raise kind_of(error)(
            f"{option} {path}: can't be written: {error.strerror or error}; name another file"
        ) from error
    return path


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Unwind on SIGTERM and SIGHUP as on Ctrl-C, so that no process stays behind.

    A signal that the caller ignores (`nohup`) stays ignored.
    """

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    ours = [number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)]
    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


def refused(error: OSError) -> int:
    """Print an error of the operating system, and return its exit code.

    If the reader of the output has closed it (`| head`), print nothing and return 0.
    """
    if error.errno != errno.EPIPE:
        where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
        say(f"harness: {where}{error.strerror or error}; fix that and run the command again")
    _lead_nowhere(sys.stdout)
    return 0 if error.errno == errno.EPIPE else UNABLE


def _lead_nowhere(stream: TextIO) -> None:
    """Send the rest of a broken stream to /dev/null.

    Otherwise Python reports a second error when it closes the stream.
    """
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """Turn errors of a command into messages and exit codes.

    A traceback is printed only for a fault of the harness.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with _damage_told() as damage:
                command(*args, **kwargs)
                flush_results()
            if damage:
                raise typer.Exit(UNABLE)
        except (MachineError, StoreUnavailable, UnreadableProblem) as error:
            fail(str(error), UNABLE)
        except (ConfigError, CatalogError, StoreError) as error:
            fail(str(error), WRONG_CALL)
        except KeyboardInterrupt:
            fail("interrupted", INTERRUPTED)
        except (typer.Exit, typer.BadParameter):
            raise
        except OSError as error:
            if error.errno != errno.EPIPE and error.errno not in OF_THE_MACHINE:
                _own_fault()
            raise typer.Exit(refused(error)) from None
        except Exception:
            _own_fault()

    return run


@contextmanager
def _damage_told() -> Iterator[list[str]]:
    """Print the warnings about damaged lines of results, each once; yields them."""
    told: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", DamagedRecord)
        show = warnings.showwarning

        def told_once(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if not issubclass(category, DamagedRecord):
                show(message, category, *where, **more)
            elif str(message) not in told:
                told.append(str(message))
                say(f"harness: {message}")

        warnings.showwarning = told_once
        yield told


def _own_fault() -> NoReturn:
    """Exit with the traceback of the current exception."""
    say(traceback.format_exc())
    fail("this is an error of the harness, not of a solution; please report it with the lines above", UNABLE)
