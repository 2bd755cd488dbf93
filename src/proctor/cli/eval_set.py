"""``proctor eval-set``: the flags of ``proctor eval``, and those that say how a set is tried again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from proctor.cli.commands import new_app
from proctor.cli.eval import EvalCommand, command, options_of
from proctor.runtime.options import OPTIONS, Option, from_flags, said_in_environment, values
from proctor.runtime.options.table import COMMAND_LINE_ONLY

GROUP: Final = "Trying again"


def _switch(name: str, help: str) -> Option:
    parameter = name.replace("-", "_")
    return Option(name=name, parameter=parameter, help=help, group=GROUP, read=values.truth, form="switch", metavar="")


SET: Final = (
    Option(
        name="retry-attempts", parameter="retry_attempts", help="Attempts in all (10).", group=GROUP,
        read=values.whole(1), metavar="N",
    ),
    Option(
        name="retry-wait", parameter="retry_wait", help="Seconds before the second attempt, doubling with each (30).",
        group=GROUP, read=values.real, metavar="SECONDS",
    ),
    Option(
        name="retry-connections", parameter="retry_connections",
        help="The rate by which an explicit --max-connections shrinks with each attempt (1.0).",
        group=GROUP, read=values.real, metavar="X",
    ),
    _switch("retry-cleanup", "Remove logs that others took the place of, once those are a success (no)."),
    _switch("log-dir-allow-dirty", "Let the folder hold logs of other tasks and models (no)."),
    Option(
        name="eval-set-id", parameter="eval_set_id", help="Kept in the logs; by default made, or what they say.",
        group=GROUP, metavar="ID",
    ),
)  # fmt: skip
OFFERED: Final = (*(option for option in OPTIONS if option.parameter not in COMMAND_LINE_ONLY - {"log_level"}), *SET)


class SetCommand(EvalCommand):
    """The command, with its own rows in the help."""

    offered = OFFERED


def evaluate_set(tasks: Sequence[str], given: Mapping[str, Any]) -> int:
    """Evaluate and return the exit code: 0 when all is done."""
    from proctor.cli.outcome import COMMAND_LINE, evaluated, terminable
    from proctor.runtime.settings import Resolved, load_dotenv

    with terminable() as ending:
        try:
            load_dotenv()
            options = options_of(from_flags(OFFERED, given))
            level = options.pop("log_level", None)
            own = {name: said.value for name, said in said_in_environment(SET).items()}
            own |= {each.parameter: options.pop(each.parameter) for each in SET if each.parameter in options}
            arguments = {name: Resolved(value, COMMAND_LINE) for name, value in options.items()}
            return evaluated(lambda: _run(list(tasks) or None, own, arguments), options, log_level=level)
        except KeyboardInterrupt:
            return ending.exit_code()


def _run(tasks: list[str] | None, own: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
    from proctor.cli.output import say
    from proctor.evaluation.setapi import eval_set

    success, logs = eval_set(tasks, **own, **arguments)
    if success:
        say(f"all done: {len(logs)} {'log is' if len(logs) == 1 else 'logs are'} a success")
    return logs


app = new_app()
app.command(cls=SetCommand)(command(OFFERED, evaluate_set, "Evaluate tasks until all are done, in one folder."))
"""The command."""
