"""Entry point of the `waltz` command: runs the application and turns every error into one line and an exit
code. What takes a while to import is imported where Ctrl-C is handled.

Exit codes: `waltz_runtime.exit_code`. With WALTZ_DEBUG=1 in the environment errors show their stack trace.
"""

from __future__ import annotations

import waltz_runtime.early_end  # noqa: F401 - before what takes a while to import

# isort: split
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from waltz_runtime import standard_streams
from waltz_runtime.exit_code import ExitCode
from waltz_runtime.visible import VisibleFormatter, visible, visible_lines
from waltz_tools.errors import ReaderGoneError
from waltz_tools.extras import explained

PROGRAM = "waltz"
COMPLETE_VARIABLE = "_WALTZ_COMPLETE"
"""What the completion that a shell has installed sets."""
_NO_ARGUMENTS = "NoArgsIsHelpError"
"""Of typer, which has no public name for it: its message is the whole help."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run and leave the interpreter."""

    def work() -> int:
        with _interrupts_end_the_process():
            import waltz_tools.cli.app  # noqa: F401
        return run(sys.argv[1:] if arguments is None else list(arguments))

    leave(work)


@contextmanager
def _interrupts_end_the_process() -> Iterator[None]:
    """Around imports: pydantic, while it builds a model, makes an error of its own of a KeyboardInterrupt.
    Nothing is open yet, and nothing printed."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(ExitCode.INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def kubectl_plugin() -> None:
    """`kubectl waltz …`: kubectl runs the program `kubectl-waltz`, which is `waltz k8s …`."""
    arguments = sys.argv[1:]
    main(arguments if arguments == ["--version"] else ["k8s", *arguments])


def leave(work: Callable[[], int]) -> NoReturn:
    """Leave the interpreter with the exit code of `work`; Ctrl-C is one too."""
    try:
        standard_streams.complete()
        if logging.lastResort is not None:  # writes the warnings of the client, and what peers say in them
            logging.lastResort.setFormatter(VisibleFormatter())
        code = work()
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command line; the exit code. What is no error (Ctrl-C, a cancellation, a time limit of tests)
    passes through."""
    from typer.main import get_command

    from waltz_tools.cli.app import Interrupted, app
    from waltz_tools.invocation import waltz_command

    try:
        result = get_command(app).main(
            args=arguments,
            prog_name=PROGRAM if _concerns_completion(arguments) else waltz_command(),
            complete_var=COMPLETE_VARIABLE,
            standalone_mode=False,
        )
    except Interrupted:
        raise KeyboardInterrupt from None
    except Exception as error:
        if isinstance(_first(error), ReaderGoneError):
            # `waltz tail | head`: what was wanted has been read. Nothing more can be written, at the exit
            # neither.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return ExitCode.OK
        return show(error)
    return result if isinstance(result, int) else ExitCode.OK


def _concerns_completion(arguments: list[str]) -> bool:
    """Shells complete a command by its name alone, however it was started."""
    wanted = {"--install-completion", "--show-completion"}
    return COMPLETE_VARIABLE in os.environ or not wanted.isdisjoint(arguments)


def show(error: BaseException) -> int:
    """One line on standard error; the exit code."""
    from waltz_tools.invocation import as_started

    if os.environ.get("WALTZ_DEBUG"):
        import traceback

        sys.stderr.write(visible_lines("".join(traceback.format_exception(error))))
    culprit = _first(error)
    if isinstance(culprit, ModuleNotFoundError):
        culprit = explained(culprit)
    if type(culprit).__name__ == _NO_ARGUMENTS:
        sys.stderr.write(f"{_described(culprit)}\n\n")
    line = as_started(" ".join(_message(culprit).split()))
    sys.stderr.write(f"Error: {visible(line)}\n")
    code = getattr(culprit, "exit_code", None)
    if isinstance(code, int):
        return code
    return ExitCode.FAILED if _foreseen(culprit) else ExitCode.INTERNAL


def _described(error: BaseException) -> str | None:
    """What an error of the command line says; None for all others."""
    described = getattr(error, "format_message", None)
    return str(described()) if callable(described) else None


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _foreseen(error: BaseException) -> bool:
    return hasattr(error, "retriable") or isinstance(error, OSError)


def _message(error: BaseException) -> str:
    if type(error).__name__ == _NO_ARGUMENTS:
        return "a sub-command is missing"
    described = _described(error)
    if described is not None:
        return described
    text = str(error)
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if _foreseen(error):
        return text or type(error).__name__
    return f"unexpected {type(error).__name__}: {text} (WALTZ_DEBUG=1 shows where)"


if __name__ == "__main__":
    main()
