"""The command line: `mmb COMMAND ...`; the modules of this package have the commands."""

import errno
import os
import sys
import warnings
from collections.abc import Sequence

from mmb.cli.console import Console
from mmb.cli.named_files import check_files
from mmb.cli.parser import function_of, parse
from mmb.cli.usage import UsageError

__all__ = ["main"]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_TOO_MANY_FILES = (errno.EMFILE, errno.ENFILE)
_lost: list[Exception] = []  # their frames hold what gloo would wait for forever if it were freed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The words after `mmb`; by default those of this process.

    Returns:
        0 if all went well, 1 if the command failed, 2 if it was not understood, 130 if it was interrupted.
        A failure is one message on stderr, and a traceback only with `--debug`.
    """
    words, arguments = arguments, sys.argv[1:] if arguments is None else arguments
    console = Console()
    console.json, debug = "--json" in arguments, False  # also if the rest is not understood
    try:
        options = parse(arguments)
        console.json, debug = options.json, options.debug
        check_files(options)
        run_command = function_of(options)
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = lambda message, *_: console.warn(str(message))
            run_command(options, console)
    except UsageError as error:
        console.fail(str(error))
        return 2
    except BrokenPipeError:  # the reader of the output has seen enough
        sys.stderr.close()
        return 0
    except KeyboardInterrupt as error:
        usual = ["a run that was training continues with `mmb resume RUN`"]
        console.fail("interrupted; " + "; ".join(getattr(error, "__notes__", usual)))
        return 130
    except Exception as error:
        if debug:
            raise
        console.fail(_message(error))
        from mmb.training.processes.rendezvous import ProcessError
        from mmb.training.recipes.recipe import RecipeError

        if isinstance(error, ProcessError):
            _lost.append(error)
            if words is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
                sys.stdout.flush()
                os._exit(1)
        return 2 if isinstance(error, RecipeError) else 1
    return 0


def _message(error: Exception) -> str:
    """The message of an exception, with its type if it is not meant for users."""
    own = type(error).__module__.startswith("mmb")
    expected = own or isinstance(error, ValueError | OSError | ImportError)
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.errno in _FULL:
        text += ": free some space, and " + "; ".join(getattr(error, "__notes__", ["run the command again"]))
    if isinstance(error, OSError) and error.errno in _FORBIDDEN and error.filename is not None:
        text = (
            f"{error.filename}: {error.strerror}: change its permissions, or choose another place (--output; "
            "for data sets, the variable MMB_DATA), and run the command again; what is there is unchanged"
        )
    if isinstance(error, NotADirectoryError) and error.filename is not None:
        text = (
            f"{error.filename}: a part of this path is a file, not a folder: choose another place (--output; "
            "for data sets, the variable MMB_DATA), and run the command again"
        )
    if isinstance(error, OSError) and error.errno in _TOO_MANY_FILES:
        text += ": raise the limit (see `ulimit -n`), or lower --jobs, and run the command again"
    return text if expected else f"{type(error).__name__}: {text} (use --debug to see where)"
