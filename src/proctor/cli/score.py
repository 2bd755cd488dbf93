"""``proctor score``: score a log anew, into a new file or in place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proctor.cli.commands import new_app
from proctor.cli.output import say
from proctor.errors import OptionError, UsageError
from proctor.runtime.options import values

if TYPE_CHECKING:
    from proctor.log import EvalLog

app = new_app()


@app.command()
def score(
    log_file: Annotated[str, typer.Argument(help="A log.")],
    *,
    scorer: Annotated[
        list[str] | None,
        typer.Option("--scorer", help="A scorer's name, or file.py@name; repeatable; default those of the log."),
    ] = None,
    scorer_args: Annotated[
        list[str] | None, typer.Option("-S", metavar="NAME=VALUE", help="An argument of the scorer; repeatable.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="What scorers call; default the log's model.")] = None,
    model_role: Annotated[
        list[str] | None, typer.Option("--model-role", metavar="ROLE=MODEL", help="A model for a role; repeatable.")
    ] = None,
    action: Annotated[
        str, typer.Option("--action", metavar="append|overwrite", help="Keep the scores that are there, or not.")
    ] = "append",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Change the log itself.")] = False,
    output_file: Annotated[
        str | None, typer.Option("--output-file", metavar="FILE", help="Where to write; default the name with -scored.")
    ] = None,
    max_samples: Annotated[int | None, typer.Option("--max-samples", metavar="N", help="At once (64).")] = None,
) -> int:
    """Score a log anew; no sample is run again."""
    from proctor.cli.log import summarized
    from proctor.cli.outcome import terminable
    from proctor.evaluation import rescore
    from proctor.log import read_eval_log, write_eval_log
    from proctor.log.places import place_of
    from proctor.runtime.settings import load_dotenv

    if action not in {"append", "overwrite"}:
        raise OptionError(f"--action must be append or overwrite, not {action!r}")
    if overwrite and output_file is not None:
        raise OptionError("--overwrite and --output-file contradict each other; give one of them")
    with terminable() as ending:
        try:
            load_dotenv()
            log = read_eval_log(log_file, resolve_attachments="full")
            scorers = _scorers(log, scorer or [], _pairs("-S", scorer_args))
            made = rescore.score(
                log, scorers, model=model, model_roles=_pairs("--model-role", model_role) or None, action=action,  # type: ignore[arg-type]
                copy=False, max_samples=max_samples,
            )  # fmt: skip
            path = place_of(log_file)
            target = path if overwrite else place_of(output_file or path.with_name(f"{path.stem}-scored{path.suffix}"))
            if not overwrite and output_file is None and target.exists():
                raise UsageError(f"{target} exists; name another with --output-file, or change the log: --overwrite")
            write_eval_log(made, target)
            summarized([str(target)])
        except KeyboardInterrupt:
            return ending.exit_code()
    say(f"scored {len(made.samples or ())} samples into {target}")
    return 0


def _pairs(flag: str, texts: list[str] | None) -> dict[str, Any]:
    try:
        return values.pairs(texts or [])
    except ValueError as error:
        raise OptionError(f"{flag} must be {error}, not {' '.join(texts or [])!r}") from None


def _made(name: str, arguments: dict[str, Any]) -> Any:
    from proctor.registry import lookup

    try:
        return lookup("scorer", name)(**arguments)
    except TypeError as error:
        raise UsageError(f"scorer {name}: {error}") from error


def _scorers(log: EvalLog, names: list[str], arguments: dict[str, Any]) -> list[Any]:
    """The scorers that are named, else those of the log."""
    from proctor.evaluation.load import run_file

    if not names:
        if not log.eval.scorers:
            raise UsageError(f"{log.location}: the log names no scorer; name one with --scorer")
        return [_made(each.name, {**(each.options or {}), **arguments}) for each in log.eval.scorers]
    made = []
    for name in names:
        file, _, own = name.rpartition("@")
        if file:
            run_file(Path(file))
        made.append(_made(own, arguments))
    return made
