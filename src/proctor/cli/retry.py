"""``proctor retry``: go on in logs, with the flags of ``proctor eval`` that may differ from what the logs say."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from proctor.cli.commands import new_app
from proctor.cli.eval import EvalCommand, annotation, options_of
from proctor.runtime.options import OPTIONS, Option, from_flags, values
from proctor.runtime.options.table import COMMAND_LINE_ONLY

LOGS: Final = "The logs to go on in."
CLEANUP: Final = Option(
    name="log-cleanup",
    parameter="log_cleanup",
    help="Remove a log that another one took the place of, once that is a success.",
    group="Logs and display",
    read=values.truth,
    form="switch",
    metavar="",
)
NOT_HERE: Final = frozenset(
    {
        "task_args", "tags", "metadata", "limit", "sample_id", "sample_shuffle", "message_limit", "token_limit",
        "turn_limit", "time_limit", "working_limit", "cost_limit", "max_dataset_memory", "log_format",
    }
)  # fmt: skip
"""Options that a log decides on."""
OWN: Final = COMMAND_LINE_ONLY - {"log_level"}


def _offered() -> tuple[Option, ...]:
    parameters = inspect.signature(_eval_retry()).parameters
    generation = {"max_retries", "timeout", "attempt_timeout", "stream_idle_timeout", "max_connections"}
    wanted = {*parameters, *generation, "adaptive_connections", "log_level"} - NOT_HERE - OWN
    return (*(option for option in OPTIONS if option.parameter in wanted), CLEANUP)


def _eval_retry() -> Any:
    from proctor.evaluation.retry import eval_retry

    return eval_retry


class RetryCommand(EvalCommand):
    """The command, with its own rows in the help."""

    offered = _offered()
    takes = ("LOGS...", LOGS)


def retry(logs: Sequence[str], given: Mapping[str, Any]) -> int:
    """Go on in logs and return the exit code: 0 when every one is a success now."""
    from proctor.cli.outcome import COMMAND_LINE, evaluated, terminable
    from proctor.runtime.settings import Resolved, load_dotenv

    with terminable() as ending:
        try:
            load_dotenv()
            options = options_of(from_flags(RetryCommand.offered, given))
            level, cleanup = options.pop("log_level", None), options.pop("log_cleanup", False)
            arguments = {name: Resolved(value, COMMAND_LINE) for name, value in options.items()}
            return evaluated(
                lambda: _eval_retry()(list(logs), log_cleanup=bool(cleanup), **arguments), options, log_level=level
            )
        except KeyboardInterrupt:
            return ending.exit_code()


def command(
    options: Iterable[Option], act: Callable[[Sequence[str], Mapping[str, Any]], int], help: str
) -> Callable[..., int]:
    """A function whose signature typer reads as the command's arguments and flags."""

    def run(**given: Any) -> int:
        return act(given.pop("logs"), given)

    run.__doc__ = help
    keyword = inspect.Parameter.KEYWORD_ONLY
    logs = inspect.Parameter("logs", keyword, annotation=Annotated[list[str], typer.Argument(help=LOGS)])
    flags = [inspect.Parameter(option.key, keyword, default=None, annotation=annotation(option)) for option in options]
    vars(run)["__signature__"] = inspect.Signature([logs, *flags])
    run.__annotations__ = {}
    return run


app = new_app()
app.command(cls=RetryCommand)(command(RetryCommand.offered, retry, "Go on in logs that did not end well."))
