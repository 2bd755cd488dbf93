"""The head of a log: what is evaluated, how, from which code."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from proctor import registry
from proctor.evaluation.plan import PlannedRun, task_label
from proctor.evaluation.roles import logged_roles
from proctor.evaluation.samplerun import solvers_of
from proctor.evaluation.sandboxing import logged_sandbox
from proctor.log.records import (
    EvalConfig,
    EvalDataset,
    EvalPlan,
    EvalPlanStep,
    EvalRevision,
    EvalScorer,
    EvalSpec,
)
from proctor.model.config import public_config
from proctor.scorer import Scorer
from proctor.scorer.reducers import reducer_name
from proctor.scorer.results import loggable, metric_infos
from proctor.scorer.scoring import scorer_metrics
from proctor.solver import Solver
from proctor.solver.solving import solver_name


def eval_spec(
    plan: PlannedRun,
    *,
    run_id: str,
    eval_id: str,
    task_id: str,
    created: str,
    sample_ids: Sequence[int | str] | None,
    scorers: Mapping[str, Any],
    revision: EvalRevision | None,
) -> EvalSpec:
    """The specification of one run.

    Args:
        created: ISO 8601. sample_ids: of those that will run, in order; None while they are not all known.
    """
    task, options, model = plan.task, plan.options, plan.model
    first = _step(solvers_of(plan)[-1])
    info = task.info
    return EvalSpec(
        eval_id=eval_id,
        run_id=run_id,
        created=created,
        task=task_label(task),
        task_id=task_id,
        task_version=task.version,
        task_file=_relative(task.file),
        task_display_name=task.display_name,
        task_description=task.description,
        task_registry_name=info.name if info else None,
        task_attribs=dict(info.metadata) if info else {},
        task_args=loggable(plan.task_args),
        task_args_passed=loggable(plan.task_args_passed),
        solver=first.solver if options.solver is not None else None,
        solver_args=first.params if options.solver is not None else None,
        tags=[*(task.tags or []), *options.tags] or None,
        dataset=EvalDataset(
            name=task.dataset.name,
            location=_relative(task.dataset.location),
            samples=None if sample_ids is None else len(sample_ids),
            sample_ids=None if sample_ids is None else list(sample_ids),
            shuffled=task.dataset.shuffled or bool(options.sample_shuffle),
        ),
        sandbox=logged_sandbox(options.sandbox),
        model=str(model),
        model_generate_config=public_config(model.config),
        model_base_url=model.base_url,
        model_args=loggable(model.public_args),
        model_roles=logged_roles(plan.roles),
        config=_config(plan),
        revision=revision,
        packages={"proctor": _version()},
        metadata={**(task.metadata or {}), **options.metadata} or None,
        scorers=[logged_scorer(name, scorer, task.metrics) for name, scorer in scorers.items()] or None,
    )


def eval_plan(plan: PlannedRun) -> EvalPlan:
    """The steps of a run."""
    steps = [*([plan.task.setup] if plan.task.setup else []), *solvers_of(plan)]
    return EvalPlan(steps=[_step(solver) for solver in steps], config=public_config(plan.model.config))


def git_revision(folder: Path) -> EvalRevision | None:
    """The commit that `folder` is at, None outside a repository or without git. It blocks: call it in a thread."""

    def git(*args: str) -> str:
        command = ["git", "-C", str(folder), *args]
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)  # noqa: S603
        return done.stdout.strip()

    try:
        commit = git("rev-parse", "--short", "HEAD")
        dirty = bool(git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return None
    try:
        origin = _without_secret(git("remote", "get-url", "origin"))
    except (OSError, subprocess.SubprocessError):
        origin = ""
    return EvalRevision(type="git", origin=origin, commit=commit, dirty=dirty)


def _without_secret(url: str) -> str:
    scheme, slashes, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if slashes else url


def _config(plan: PlannedRun) -> EvalConfig:
    options = plan.options
    tokens, token_type = options.tokens
    reducer = options.epochs.reducer if options.epochs else None
    return EvalConfig(
        limit=options.limit,
        sample_id=options.sample_id,
        sample_shuffle=options.sample_shuffle,
        epochs=options.epochs.epochs if options.epochs else 1,
        epochs_reducer=["mean"] if reducer is None else [reducer_name(r) for r in reducer],
        fail_on_error=True if options.fail_on_error is None else options.fail_on_error,
        continue_on_fail=options.continue_on_fail,
        retry_on_error=options.retry_on_error,
        score_on_error=options.score_on_error,
        message_limit=options.message_limit,
        token_limit=tokens,
        token_limit_type=token_type,
        turn_limit=options.turn_limit,
        time_limit=None if options.time_limit is None else int(options.time_limit),
        working_limit=None if options.working_limit is None else int(options.working_limit),
        cost_limit=options.cost_limit,
        max_samples=options.max_samples,
        max_tasks=options.max_tasks,
        max_subprocesses=options.max_subprocesses,
        max_sandboxes=options.max_sandboxes,
        sandbox_cleanup=options.sandbox_cleanup,
        max_dataset_memory=options.max_dataset_memory,
        log_samples=options.log_samples,
        log_images=options.log_images,
        log_buffer=options.log_buffer,
    )


def _step(solver: Solver) -> EvalPlanStep:
    info = registry.info_of(solver)
    if info is None:
        return EvalPlanStep(solver=solver_name(solver))
    return EvalPlanStep(solver=info.name, params=loggable(info.params), params_passed=loggable(info.passed))


def logged_scorer(name: str, scorer: Scorer, metrics: Any) -> EvalScorer:
    """A scorer as a log holds it, with the metrics given in place of its own (None: its own)."""
    info = registry.info_of(scorer)
    return EvalScorer(
        name=name,
        options=loggable(info.params) if info else None,
        metrics=metric_infos(scorer_metrics(scorer) if metrics is None else metrics),
    )


def _relative(path: str | None) -> str | None:
    """A path below the working folder as seen from there; another one as it is."""
    if path is None or "://" in path:
        return path
    try:
        return str(Path(path).resolve().relative_to(Path.cwd()))
    except ValueError:
        return path


def _version() -> str:
    try:
        return version("proctor")
    except PackageNotFoundError:
        return "0"
