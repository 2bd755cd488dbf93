"""What must be the same for finished samples to be reused, field by field of a log's header."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from proctor.evaluation.fingerprint import differences, is_foreign, raised_limits
from proctor.log import EvalConfig, EvalDataset, EvalLog, EvalPlan, EvalPlanStep, EvalScorer, EvalSpec
from proctor.log.records import EvalModelConfig
from proctor.model import GenerateConfig

SPEC = EvalSpec(
    created="2030-01-01T00:00:00+00:00",
    task="t",
    task_args={"n": 3, "word": "x"},
    task_args_passed={"n": 3},
    dataset=EvalDataset(sample_ids=[1, 2]),
    model="openai-api/local/m",
    model_base_url="http://127.0.0.1:1/v1",
    model_args={"flavour": "a"},
    model_roles={"grader": EvalModelConfig(model="mock/g", config=GenerateConfig(temperature=0))},
    config=EvalConfig(limit=3, epochs=2, message_limit=10, token_limit=100),
    scorers=[EvalScorer(name="match", options={"location": "end"})],
    packages={"proctor": "1"},
)
PLAN = EvalPlan(
    steps=[EvalPlanStep(solver="system_message", params={"template": "Be brief.", "n": 1}, params_passed={})],
    config=GenerateConfig(temperature=0.5, max_connections=5, stop_seqs=["a"]),
)
OLD = EvalLog(eval=SPEC, plan=PLAN)


def spec(**changed: Any) -> EvalSpec:
    return evolve(SPEC, **changed)


def config(**changed: Any) -> EvalSpec:
    return spec(config=evolve(SPEC.config, **changed))


def plan(step: dict[str, Any] | None = None, **changed: Any) -> EvalPlan:
    steps = [evolve(PLAN.steps[0], **step)] if step else PLAN.steps
    return EvalPlan(steps=steps, config=PLAN.config.merge(changed))


def test_the_same_does_not_differ() -> None:
    assert differences(OLD, SPEC, PLAN) == []
    assert not is_foreign(OLD)


@pytest.mark.parametrize(
    ("new", "steps", "reason"),
    [
        (spec(task="other"), PLAN, "task is 'other', was 't'"),
        (spec(task_version=2), PLAN, "task_version is 2, was 0"),
        (spec(task_args={"n": 3, "word": "y"}), PLAN, "task_args.word is 'y', was 'x'"),
        (spec(model="openai-api/local/n"), PLAN, "model is 'openai-api/local/n'"),
        (spec(model_args={}), PLAN, "model_args.flavour is unset, was 'a'"),
        (spec(model_roles=None), PLAN, "model_roles"),
        (spec(scorers=None), PLAN, "scorer"),
        (spec(scorers=[EvalScorer(name="match", options={"location": "any"})]), PLAN, "scorer"),
        (SPEC, plan({"params": {"template": "Be long.", "n": 1}}), "solver system_message.template is 'Be long.'"),
        (SPEC, plan({"solver": "other"}), "solver is ['other'], was ['system_message']"),
        (SPEC, EvalPlan(config=PLAN.config), "solver is [], was ['system_message']"),
        (SPEC, plan(temperature=0.6), "temperature is 0.6, was 0.5"),
        (SPEC, plan(max_tokens=5), "max_tokens is 5, was unset"),
        (SPEC, plan(stop_seqs=["b"]), "stop_seqs"),
        (config(message_limit=9), PLAN, "message_limit is lower: 9 instead of 10"),
        (config(time_limit=60), PLAN, "time_limit is lower: 60 instead of unset"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_asked_and_how_it_is_scored_matters(new: EvalSpec, steps: EvalPlan, reason: str) -> None:
    [found] = differences(OLD, new, steps)
    assert reason in found


@pytest.mark.parametrize(
    ("new", "steps"),
    [
        (spec(model_base_url="http://127.0.0.1:2/v1"), PLAN),
        (spec(tags=["x"], metadata={"y": 1}, created="later", eval_id="e", packages={"proctor": "2"}), PLAN),
        (spec(dataset=EvalDataset(sample_ids=[7])), PLAN),
        (config(limit=None, epochs=5, sample_shuffle=3, sample_id=["1"], epochs_reducer=["max"]), PLAN),
        (config(fail_on_error=False, retry_on_error=3, max_samples=1, max_tasks=4, log_buffer=1), PLAN),
        (config(message_limit=11, token_limit=None), PLAN),
        (SPEC, plan(max_connections=50, max_retries=1, timeout=5, attempt_timeout=5, stream_idle_timeout=5)),
        (SPEC, plan(adaptive_connections=False)),
    ],
    ids=lambda _: "",
)
def test_what_decides_how_fast_where_and_which_does_not(new: EvalSpec, steps: EvalPlan) -> None:
    assert differences(OLD, new, steps) == []


def test_raised_limits_are_named() -> None:
    assert raised_limits(OLD, SPEC) == frozenset()
    assert raised_limits(OLD, config(message_limit=11, token_limit=None)) == {"message", "token"}


def test_of_a_foreign_log_only_what_was_passed_is_compared() -> None:
    foreign = evolve(OLD, eval=spec(packages={"inspect_ai": "0.3.285"}))
    assert is_foreign(foreign)
    changed = spec(
        task_args={"n": 3, "word": "y"}, scorers=[EvalScorer(name="match", options={"location": "end", "more": 1})]
    )
    assert differences(foreign, changed, plan({"params": {"template": "Be brief.", "more": 2}})) == []
    [reason] = differences(foreign, spec(task_args_passed={"n": 4}), PLAN)
    assert reason == "task_args_passed.n is 4, was 3"
