"""From a log back to the run that it is of: its task, its model, its options; and whether it can be gone on in."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from attrs import evolve, fields, frozen

from proctor import registry
from proctor.errors import LogError, NotFoundError, UsageError
from proctor.evaluation.configs import is_grid
from proctor.evaluation.fingerprint import differences, raised_limits
from proctor.evaluation.header import eval_plan, eval_spec
from proctor.evaluation.options import EvalOptions
from proctor.evaluation.plan import PlannedRun, TaskSource, make_plan
from proctor.evaluation.resume import ReadSample, Resume
from proctor.evaluation.said import Said, sourced
from proctor.evaluation.sandboxing import logged_sandbox, read_sandbox
from proctor.evaluation.task import Epochs
from proctor.log.adopt import IN_USE, OURS, adopt, can_go_on
from proctor.log.evalfile import wal_path
from proctor.log.index import read_index
from proctor.log.logfile import LogFile
from proctor.log.places import Place, place_of, working_path
from proctor.log.reader import read_eval_log, read_eval_log_sample
from proctor.log.records import EvalLog, EvalSpec
from proctor.log.running import remove_running
from proctor.log.working import fetched
from proctor.model import GenerateConfig
from proctor.runtime.settings import Resolved
from proctor.runtime.tokens import TokenLimit
from proctor.scorer.reducers import reducer_name
from proctor.scorer.scoring import scorer_names

FROM_LOG: Final = "log"
PLAIN: Final = (
    "limit", "sample_id", "sample_shuffle", "fail_on_error", "continue_on_fail", "retry_on_error", "score_on_error",
    "message_limit", "turn_limit", "cost_limit", "max_samples", "max_tasks", "max_subprocesses", "max_sandboxes",
    "sandbox_cleanup", "max_dataset_memory", "log_samples", "log_images", "log_buffer",
)  # fmt: skip
"""Options of a run that a log holds as they were given."""
SECONDS: Final = ("time_limit", "working_limit")
"""Options of which a log holds the whole seconds."""
NOT_ASKED: Final = frozenset({"events", "messages", "store", "attachments", "output", "events_data"})


@frozen(kw_only=True)
class OldLog:
    """A log to be retried.

    Attributes:
        source: where it was found. path: where it is gone on in: the same, or a copy. header: without samples.
        file: what is read: that of `path`, of a log in a bucket the local file.
        note: why it was copied, "" when it was not. in_use: another process is writing the original.
    """

    source: Place
    path: Place
    file: Place
    header: EvalLog
    note: str = ""
    in_use: bool = False


def open_old(location: Any, log_dir: str | None = None) -> OldLog:
    """Find a log and make it one that can be gone on in: mended after a crash, or copied.

    Args:
        location: a path, an `EvalLog`, what `list_eval_logs` gave. log_dir: for a copy; default beside the log.

    Raises:
        LogError: it cannot be read or copied.
    """
    place = location.location if isinstance(location, EvalLog) else location
    if not place:
        raise LogError("this log was not read from a file; retry needs one: give its path")
    source = place_of(place)
    file, aside = (source, "") if isinstance(source, Path) else fetched(source)
    if not file.is_file():
        raise LogError(f"{source}: the log cannot be read: no such file")
    why = "it is a JSON file" if source.suffix == ".json" else can_go_on(file)
    header = read_eval_log(file, header_only=True)
    if why is None and OURS not in header.eval.packages:
        why = "another program wrote it"
    if why is None:
        return OldLog(source=source, path=source, file=file, header=_light(header), note=aside)
    folder = place_of(log_dir) if log_dir is not None else source.parent
    path = folder / f"{source.stem}-retry.eval"
    copy = _copied(file, path)
    if (hindered := can_go_on(copy)) is not None:
        raise LogError(f"{path}: the copy of {source.name} cannot be gone on in: {hindered}")
    note = f"{source.name} was copied to {path}, which is gone on in: {why}"
    header = _light(read_eval_log(copy, header_only=True))
    return OldLog(source=source, path=path, file=copy, header=header, note=note, in_use=why == IN_USE)


def _copied(file: Path, path: Place) -> Path:
    """Copy a log to where it is gone on in, unless a copy is there; returns the local file of the copy."""
    if not isinstance(path, Path):
        if path.exists():
            return fetched(path)[0]
        path = working_path(path)
    adopt(file, path)
    return path


def remove(place: Place) -> None:
    """Remove a log, with its wal or what a bucket's log left on this machine; it blocks."""
    place.unlink(missing_ok=True)
    file = place if isinstance(place, Path) else working_path(place)
    file.unlink(missing_ok=True)
    wal_path(file).unlink(missing_ok=True)
    remove_running(file)


def _light(log: EvalLog) -> EvalLog:
    return evolve(log, reductions=None, samples=None)


def planned_again(
    old: OldLog, given: Mapping[str, Any], config: Mapping[str, Any], tasks: TaskSource | None
) -> PlannedRun:
    """The run that a log is of, with what the call gives in place of what the log says.

    Args:
        given: arguments of `eval`. config: fields of the configuration.
        tasks: in place of the task that the log names.

    Raises:
        UsageError: its task, its solver or its model cannot be found again.
    """
    spec = old.header.eval
    options = {**_options(spec), **{name: value for name, value in given.items() if value is not None}}
    if given.get("model_args") is not None:  # a key is never in a log, the other arguments are
        own = sourced(given["model_args"])
        options["model_args"] = Resolved({**spec.model_args, **own.value}, own.source)
    if tasks is None:
        tasks = _task_of(old)
        options["task_args"] = Resolved(dict(spec.task_args_passed), FROM_LOG)
    options.setdefault("log_dir", Resolved(str(old.path.parent), FROM_LOG))
    fields_given = {name: value for name, value in config.items() if value is not None}
    said = Said.of(options, {**_config(old.header), **fields_given})
    runs = make_plan(tasks, said)
    if len(runs) != 1:
        raise UsageError(f"{old.source}: a retry runs one task on one model, and what was given makes {len(runs)} runs")
    return resumed(_as_before(runs[0], old, given), old)


def resumed(run: PlannedRun, old: OldLog) -> PlannedRun:
    """A run that goes on in a log, or begins a new one where nothing of the log may be reused; it says why."""
    notes = (old.note,) if old.note else ()
    spec = own_spec(run)
    reasons = differences(old.header, spec, eval_plan(run))
    if reasons:
        return evolve(run, notes=(*notes, not_reused(old.path, reasons)))
    resume = Resume(
        path=old.path,
        header=old.header,
        limits=raised_limits(old.header, spec),
        index=functools.partial(read_index, old.file),
        samples=functools.partial(_samples, old.file),
    )
    return evolve(run, resume=resume, notes=notes)


def not_reused(path: Place, reasons: Sequence[str]) -> str:
    """What to say when a new log is begun beside one that could have been gone on in."""
    why = "; ".join(reasons) or "another run goes on in it"
    return f"nothing of {path} is reused, and a new log is begun: {why}"


def own_spec(run: PlannedRun) -> EvalSpec:
    """The specification of a run, as far as it does not depend on when it runs."""
    scoring = run.task.scorer if run.options.score else []
    scorers = dict(zip(scorer_names(scoring), scoring, strict=True))
    return eval_spec(run, run_id="", eval_id="", task_id="", created="", sample_ids=[], scorers=scorers, revision=None)


@contextmanager
def _samples(path: Place) -> Iterator[ReadSample]:
    """Read records of a log, without what is large in them."""
    if path.suffix == ".json":
        yield lambda id, epoch: read_eval_log_sample(path, id, epoch)  # noqa: A006  # as the reader calls it
        return
    with LogFile.open(path) as file:
        yield lambda id, epoch: file.sample(file.find(id, epoch, None), False, set(NOT_ASKED))  # noqa: A006, FBT003


def _task_of(old: OldLog) -> str:
    spec = old.header.eval
    name = spec.task_registry_name
    if name is not None and spec.task_file is not None:
        if not Path(spec.task_file).is_file():
            raise NotFoundError(
                f"{old.source}: its task file {spec.task_file} does not exist; paths are looked up in {Path.cwd()}: "
                "go to the folder that the evaluation was started in"
            )
        return f"{spec.task_file}@{name.rpartition('/')[2]}"
    if name is not None:
        return name
    raise NotFoundError(
        f"{old.source}: its task {spec.task!r} was made without @task, so that it cannot be found again; from Python "
        "give it: eval_retry(log, task=...)"
    )


def _options(spec: EvalSpec) -> dict[str, Resolved[Any]]:
    """What a log says of the options of its run, as arguments of `eval`."""
    config = spec.config
    found: dict[str, Any] = {name: getattr(config, name) for name in PLAIN}
    if isinstance(found["limit"], list):
        found["limit"] = tuple(found["limit"])
    for name in SECONDS:
        found[name] = getattr(config, name) or None
    if config.token_limit is not None:
        kind: Any = config.token_limit_type
        found["token_limit"] = TokenLimit(config.token_limit, kind) if kind else config.token_limit
    found["epochs"] = Epochs(config.epochs or 1)
    found["model"], found["model_base_url"] = spec.model, spec.model_base_url
    found["model_args"] = spec.model_args or None
    found["model_roles"] = _roles(spec) or None
    found["score"] = None if spec.scorers else False
    return {name: Resolved(value, FROM_LOG) for name, value in found.items() if value is not None}


def _roles(spec: EvalSpec) -> dict[str, Any]:
    def one(model: Any) -> dict[str, Any]:
        config = {f.name: v for f in fields(GenerateConfig) if (v := getattr(model.config, f.name)) is not None}
        return {"model": model.model, "base_url": model.base_url, "model_args": dict(model.args), **config}

    return {
        role: [one(each) for each in models] if isinstance(models, list) else one(models)
        for role, models in (spec.model_roles or {}).items()
    }


def _config(log: EvalLog) -> dict[str, Resolved[Any]]:
    """The configuration that a log was made with; headers whose values were not logged are left to the task."""
    merged = log.eval.model_generate_config.merge(log.plan.config)
    found: dict[str, Resolved[Any]] = {}
    for each in fields(GenerateConfig):
        value = getattr(merged, each.name)
        if value is None or is_grid(each.name, value):
            continue
        if each.name == "extra_headers" and "[key]" in value.values():
            continue
        found[each.name] = Resolved(value, FROM_LOG)
    return found


def _as_before(run: PlannedRun, old: OldLog, given: Mapping[str, Any]) -> PlannedRun:
    """A run with what of its log only the task can tell how it was said."""
    spec, options, task = old.header.eval, run.options, run.task
    for name in SECONDS:
        own = getattr(task, name)
        if own is not None and given.get(name) is None and int(own) == getattr(spec.config, name):
            options = evolve(options, **{name: own})
    own_tags, own_metadata = task.tags or [], task.metadata or {}
    options = evolve(
        options,
        epochs=_epochs(spec, options, given),
        tags=tuple(tag for tag in spec.tags or () if tag not in own_tags),
        metadata={name: value for name, value in (spec.metadata or {}).items() if own_metadata.get(name) != value},
    )
    if given.get("sandbox") is None and spec.sandbox is not None and logged_sandbox(options.sandbox) != spec.sandbox:
        options = evolve(options, sandbox=read_sandbox("sandbox", spec.sandbox))
    if given.get("solver") is None and spec.solver is not None:
        options = evolve(options, solver=_solvers(old, setup=task.setup is not None))
    return evolve(run, options=options)


def _epochs(spec: EvalSpec, options: EvalOptions, given: Mapping[str, Any]) -> Epochs | None:
    """The reducers that the log names, unless the task or the call names some; a log says mean where nobody did."""
    epochs, names = options.epochs, spec.config.epochs_reducer or ["mean"]
    if epochs is None or given.get("epochs") is not None or names == ["mean"]:
        return epochs
    if epochs.reducer is not None and [reducer_name(each) for each in epochs.reducer] == names:
        return epochs
    return Epochs(epochs.epochs, list(names))


def _solvers(old: OldLog, *, setup: bool) -> list[Any]:
    """The solvers that a call gave in place of the task's own."""
    made: list[Any] = []
    steps: Sequence[Any] = old.header.plan.steps[1 if setup else 0 :]
    for step in steps:
        try:
            factory = registry.lookup("solver", step.solver)
        except NotFoundError:
            raise NotFoundError(
                f"{old.source}: its solver {step.solver!r} was given to the call and is not registered; from Python "
                "give it again: eval_retry(log, solver=...)"
            ) from None
        made.append(factory(**step.params_passed))
    return made
