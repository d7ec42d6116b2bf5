"""What every command shares: consoles, JSON, error messages, exit codes, common options.

Outside layer; trusted side. With the other modules of `cli`, the only place that prints and exits. Results go to
standard output, messages and progress to standard error.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec, TextIO

import typer

from harness.catalog import CatalogError, UnreadableProblem
from harness.core.atomic_file import FULL_OR_BROKEN
from harness.core.cache_dir import kind_of
from harness.core.config import ConfigError
from harness.core.environment import MachineError
from harness.report.format import block
from harness.results.reader import StoreError, StoreUnavailable
from harness.results.writer import RunStore

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

NOT_FOUND, WRONG_CALL, UNABLE, INTERRUPTED = 1, 2, 3, 130
"""Exit codes: a search for something failed, the call is wrong, the machine (or the harness) can't, Ctrl-C."""

STANDARD_OUTPUT = "standard output"
"""How messages call it."""

PIPED_WIDTH = 200
"""Columns of tables that nobody's terminal bounds."""

OF_THE_MACHINE = FULL_OR_BROKEN | {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ESTALE, errno.ETXTBSY),
}
"""Errors of the operating system that no line of the harness could have prevented: told without a traceback."""

P = ParamSpec("P")

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
ProblemsRoot = Annotated[
    Path | None, typer.Option("--problems", help="Folder of problems.  [problems]", show_default=False)
]


def option(name: str, text: str) -> Any:
    """An option whose default is settled elsewhere; its help says which."""
    return typer.Option(name, help=text, show_default=False)


def console(*, stderr: bool = False) -> Console:
    """A console for text that was escaped already: no markup, no emoji codes, no highlighting."""
    from rich.console import Console  # not at the top: on a GPU, eval says nothing before its referees start

    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = PIPED_WIDTH
    return made


def put(*parts: RenderableType) -> None:
    """Results, to standard output."""
    out = console()
    with to_standard_output(), out.capture() as held:
        for part in parts:
            out.print(part, soft_wrap=isinstance(part, str))
    # Tables are padded to their width, which is noise in a file.
    text = held.get()
    print_text(text if out.is_terminal else "".join(f"{line.rstrip()}\n" for line in text.split("\n")[:-1]))


def print_json(value: Any) -> None:
    """One JSON document, to standard output."""
    print_text(json.dumps(value, indent=2, allow_nan=False) + "\n")


def print_text(text: str) -> None:
    """Text exactly as it is, to standard output."""
    with to_standard_output():
        sys.stdout.write(text)


def flush_results() -> None:
    """Nothing that was printed is held back any more."""
    with to_standard_output():
        sys.stdout.flush()


@contextmanager
def to_standard_output() -> Iterator[None]:
    """What the operating system refuses meanwhile, it refuses of standard output, which has no file's name to tell."""
    try:
        yield
    except OSError as error:
        error.filename = STANDARD_OUTPUT
        raise


def say(message: str) -> None:
    """A message for the person at the keyboard, to standard error. File names in it may be hostile. Where standard
    error takes nothing (any more), it is lost, and the exit code still says what happened.
    """
    try:
        sys.stderr.write(f"{block(message)}\n")
        sys.stderr.flush()
    except OSError:
        _lead_nowhere(sys.stderr)


def opened(folder: Path) -> RunStore:
    """The run in `folder`, for reading; what was odd about it is told. Raises `StoreError`."""
    store = RunStore.open(folder)
    for note in store.notes:
        say(f"{folder}: {note}")
    return store


def fail(message: str, code: int) -> NoReturn:
    """End the command with a message and an exit code."""
    say(f"harness: {message}")
    raise typer.Exit(code)


@contextmanager
def results_alone() -> Iterator[None]:
    """What the block prints, a problem's code for one, goes to standard error, so that standard output holds results
    and nothing else.
    """
    flush_results()
    held = os.dup(1)
    try:
        os.dup2(2, 1)  # of compiled code and other programs, too
        with redirect_stdout(sys.stderr):
            yield
    finally:
        ctypes.CDLL(None).fflush(None)  # what C's printf keeps until its buffer is full, or the process ends
        os.dup2(held, 1)
        os.close(held)


def in_actions() -> bool:
    """Whether GitHub reads what is printed."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


@contextmanager
def no_commands_in_output(*, on: bool) -> Iterator[None]:
    """Lines that a submission had a say in are not taken for GitHub's workflow commands meanwhile."""
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
    """Raises `ConfigError` where standard output is asked for in two forms: option -> whether it was given."""
    given = [name for name, yes in asked.items() if yes]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)}: standard output holds one of them; leave the others out")


def writable(path: Path, option: str) -> Path:
    """`path`, its folder made where it lacks, once the file could be opened for writing: what takes long is not begun
    for a file that can't be written. Raises `ConfigError`; `MachineError` where the disk is full or broken.
    """
    there = path.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab"):
            pass
        if not there:
            path.resolve().unlink()  # a link that leads to no file yet stays
    except OSError as error:
        raise kind_of(error)(f"{option} {path}: can't be written: {error.strerror or error}; name another") from error
    return path


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """A polite kill unwinds like Ctrl-C, so that no builder or contestant is left behind. What whoever started this has
    chosen to ignore (`nohup`) stays ignored.
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
    """Say what the operating system refused, and the exit code of that. Where a reader of the output has seen enough
    (`| head`), nothing, and 0.
    """
    if error.errno != errno.EPIPE:
        where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
        say(f"harness: {where}{error.strerror or error}; mend that and call again")
    _lead_nowhere(sys.stdout)
    return 0 if error.errno == errno.EPIPE else UNABLE


def _lead_nowhere(stream: TextIO) -> None:
    """What is still to be written to a stream can't be; Python must not complain again when it closes it."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """Errors as messages and exit codes; a traceback only where the fault is the harness's own."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
            flush_results()
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


def _own_fault() -> NoReturn:
    """End with the traceback of the exception that is being handled."""
    say(traceback.format_exc())
    fail("this is a fault of the harness, not of a solution; please report it with the lines above", UNABLE)
