"""The command line's front door: which commands there are, and what a person sees when one cannot go on.

Nothing is imported before it is needed: ``proctor --help`` loads typer and this module, a command its own module. The
decorated help of typer is off (it would load rich), and so are its tracebacks: mistakes get one message each.

Exit codes: 0 all went well, 1 something did not succeed, 2 usage, 130 interrupted (143 by SIGTERM).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

SUMMARIES: Final = {
    "eval": "Evaluate tasks.",
    "eval-set": "Evaluate tasks again and again until all are done, in one folder.",
    "retry": "Go on in logs that did not end well.",
    "score": "Score a log anew.",
    "plan": "Show what an evaluation would run, and under which limits.",
    "list": "List tasks without running them.",
    "log": "List, read and print logs.",
    "sandbox": "List sandboxes and remove those that are left behind.",
    "cache": "List and remove answers that are kept to be used again.",
    "info": "Versions and surroundings, for bug reports.",
    "completion": "Print a shell's completion script.",
}
"""The commands, and what the list of them says; each is a module of this package with an ``app``."""

SUCCESS: Final = 0
FAILURE: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: default those of the process.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _command(given)
        sys.stdout.flush()
    except KeyboardInterrupt:
        from proctor.cli.output import say

        say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has what it wanted.
        from proctor.cli.output import forget_output

        forget_output()
        return SUCCESS
    except Exception as error:
        from proctor.cli.report import report

        return report(error, command=" ".join(["proctor", *(name for name in given[:1] if name in SUMMARIES)]))
    return code


def _command(arguments: list[str]) -> int:
    if arguments in (["--version"], ["-V"]):
        from proctor.cli.version import show_version

        show_version()
        return SUCCESS
    from proctor.cli.commands import root

    outcome = root()(args=arguments or ["--help"], prog_name="proctor", standalone_mode=False)
    return outcome if isinstance(outcome, int) else SUCCESS


if __name__ == "__main__":
    sys.exit(main())
