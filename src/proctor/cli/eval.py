"""``proctor eval``: the table of options as a command, and a run's outcome as an exit code.

What is not given as a flag is not given to the engine, which reads the environment itself: there it stands below what
models and tasks say, and a flag above them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

from proctor.cli.commands import new_app
from proctor.errors import OptionError
from proctor.runtime.options import OPTIONS, Option, from_flags, said_in_environment
from proctor.runtime.options.table import COMMAND_LINE_ONLY, REDUCER

TASKS: Final = "A file, file.py@task, a folder, or a registered task; default: the working folder."


class EvalCommand(TyperCommand):
    """A command whose flags may stand alone where the table allows it, and whose help has headings."""

    offered: Iterable[Option] = OPTIONS
    takes: tuple[str, str] = ("[TASKS]...", TASKS)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, completed(args))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Arguments"):
            formatter.write_dl([self.takes])
        for title, rows in help_rows(self.offered).items():
            with formatter.section(title):
                formatter.write_dl(rows)
        formatter.write_paragraph()
        formatter.write_text(
            "Each flag can be given as an environment variable: --max-tasks as PROCTOR_EVAL_MAX_TASKS, or as "
            "INSPECT_EVAL_MAX_TASKS, which is read after it; -T as PROCTOR_EVAL_TASK_ARGS, -M as "
            "PROCTOR_EVAL_MODEL_ARGS. The .env files of this folder and those above it are read."
        )


def completed(args: Sequence[str]) -> list[str]:
    """`args` with the value written out for flags that were given without one: ``--retry-on-error`` as ``…=1``."""
    alone = {option.flag: option for option in OPTIONS if option.bare is not None}
    out: list[str] = []
    for position, arg in enumerate(args):
        if arg == "--":
            return [*out, *args[position:]]
        option = alone.get(arg)
        following = args[position + 1] if position + 1 < len(args) else None
        takes = option is None or (following is not None and option.metavar != "" and _readable(option, following))
        out.append(arg if takes or option is None else f"{arg}={option.bare}")
    return out


def run(tasks: Sequence[str], given: Mapping[str, Any]) -> int:
    """Evaluate, or show the plan when only that is wanted, and return the exit code.

    Args:
        given: flags by `Option.key`, None where one was not given.
    """
    from proctor.cli.outcome import evaluate, show_plan, terminable
    from proctor.runtime.settings import load_dotenv

    with terminable() as ending:
        try:
            load_dotenv()
            options = options_of(from_flags(OPTIONS, given))
            own = _own_options(options)
            if own["dry_run"]:
                return show_plan(list(tasks), options, as_json=own["json"])
            if own["json"]:
                raise OptionError("--json shows a plan: give --dry-run too, or use proctor plan")
            return evaluate(list(tasks), options, log_level=own["log_level"])
        except KeyboardInterrupt:
            return ending.exit_code()


def options_of(flags: dict[str, Any]) -> dict[str, Any]:
    """What the flags say as arguments of `eval`: of the two flags for epochs one argument is made."""
    reducers = flags.pop(REDUCER, None)
    if reducers is not None:
        from proctor.evaluation.task import Epochs

        count = flags.get("epochs") or _said("epochs")
        if count is None:
            raise OptionError("--epochs-reducer needs --epochs: say how often each sample is to be run")
        flags["epochs"] = Epochs(count, reducers)
    return flags


def _own_options(flags: dict[str, Any]) -> dict[str, Any]:
    """Take out what the command line does itself; where a flag says nothing, its variables are read."""
    found = {name: flags.pop(name, None) for name in sorted(COMMAND_LINE_ONLY)}
    return {name: _said(name) if value is None else value for name, value in found.items()}


def _said(parameter: str) -> Any:
    """What the environment says of one option."""
    said = said_in_environment(option for option in OPTIONS if option.parameter == parameter)
    return said[parameter].value if parameter in said else None


def command(
    options: Iterable[Option], act: Callable[[Sequence[str], Mapping[str, Any]], int], help: str
) -> Callable[..., int]:
    """A function whose signature typer reads as a command's arguments and flags."""

    def eval(**given: Any) -> int:
        return act(given.pop("tasks") or [], given)

    eval.__doc__ = help

    keyword = inspect.Parameter.KEYWORD_ONLY
    tasks = inspect.Parameter(
        "tasks", keyword, default=None, annotation=Annotated[list[str] | None, typer.Argument(help=TASKS)]
    )
    flags = [inspect.Parameter(option.key, keyword, default=None, annotation=annotation(option)) for option in options]
    vars(eval)["__signature__"] = inspect.Signature([tasks, *flags])
    eval.__annotations__ = {}
    return eval


def annotation(option: Option) -> Any:
    """What typer reads a flag from."""
    if option.form == "switch":
        return Annotated[bool | None, typer.Option(f"--{option.name}/--no-{option.name}", help=option.help)]
    kind = list[str] | None if option.form == "many" else str | None
    return Annotated[kind, typer.Option(option.flag, help=option.help, metavar=option.metavar)]


def help_rows(options: Iterable[Option] = OPTIONS) -> dict[str, list[tuple[str, str]]]:
    """The rows of a command's help by heading."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for option in options:
        written = f"--[no-]{option.name}" if option.form == "switch" else f"{option.flag} {option.metavar}".rstrip()
        groups.setdefault(option.group, []).append((written, option.help))
    groups["Help"] = [("-h, --help", "Show this.")]
    return groups


def _readable(option: Option, text: str) -> bool:
    try:
        option.read(text)
    except ValueError:
        return False
    return True


app = new_app()
app.command(cls=EvalCommand)(command(OPTIONS, run, "Evaluate tasks."))
