"""Which place decides: built-in, provider, environment, model's config, task, call, and last the call's own config."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from proctor import Epochs, Task, eval, task
from proctor.dataset import Sample
from proctor.errors import NotFoundError, OptionError, UsageError
from proctor.evaluation.report import plan_report
from proctor.model import GenerateConfig, get_model
from proctor.scorer import includes
from proctor.solver import TaskState, solver

ENVIRONMENT = "environment variable PROCTOR_EVAL_"


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("PROCTOR_", "INSPECT_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def limits(task: Any, model: Any = "mock/m", **options: Any) -> dict[str, tuple[Any, str]]:
    """The limits of the one run that this plan has, with where they came from."""
    [run] = plan_report(task, model=model, **options).runs
    return {limit.name: (limit.value, limit.source) for limit in run.limits}


def one(**options: Any) -> Task:
    return Task([Sample("x")], **options)


def test_connections_are_decided_by_the_last_place_that_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "max_connections"
    assert limits(one())[name] == (10, "provider")
    monkeypatch.setenv("INSPECT_EVAL_MAX_CONNECTIONS", "2")
    assert limits(one())[name] == (2, "environment variable INSPECT_EVAL_MAX_CONNECTIONS")
    monkeypatch.setenv("PROCTOR_EVAL_MAX_CONNECTIONS", "3")
    assert limits(one())[name] == (3, ENVIRONMENT + "MAX_CONNECTIONS")
    model = get_model("mock/m", config=GenerateConfig(max_connections=4))
    assert limits(one(), model)[name] == (4, "model's config")
    task = one(config=GenerateConfig(max_connections=5))
    assert limits(task, model)[name] == (5, "task")
    assert limits(task, model, max_connections=6)[name] == (6, "eval() argument")
    assert limits(task, model, max_connections=6)["max_samples"] == (7, "built-in")


@pytest.mark.parametrize(
    ("option", "variable", "of_environment", "of_task", "of_call"),
    [
        ("message_limit", "5", 5, 6, 7), ("token_limit", "5k", 5000, 6, 7), ("time_limit", "5.5", 5.5, 6.0, 7),
        ("working_limit", "5", 5, 6, 7), ("fail_on_error", "0.5", 0.5, 3.0, False),
    ],
)  # fmt: skip
def test_an_option_of_the_task_stands_between_environment_and_call(
    monkeypatch: pytest.MonkeyPatch, option: str, variable: str, of_environment: Any, of_task: Any, of_call: Any
) -> None:
    monkeypatch.setenv(f"PROCTOR_EVAL_{option.upper()}", variable)
    assert limits(one())[option] == (of_environment, ENVIRONMENT + option.upper())
    task = one(**{option: of_task})
    assert limits(task)[option] == (of_task, "task")
    assert limits(task, **{option: of_call})[option] == (of_call, "eval() argument")
    monkeypatch.delenv(f"PROCTOR_EVAL_{option.upper()}")
    assert limits(task)[option] == (of_task, "task")


@pytest.mark.parametrize("switch", ["continue_on_fail", "score_on_error"])
def test_what_a_task_switches_off_the_environment_does_not_switch_on(
    monkeypatch: pytest.MonkeyPatch, switch: str
) -> None:
    monkeypatch.setenv(f"PROCTOR_EVAL_{switch.upper()}", "true")
    assert [getattr(log.eval.config, switch) for log in run(one())] == [True]
    assert [getattr(log.eval.config, switch) for log in run(one(**{switch: False}))] == [False]
    assert [getattr(log.eval.config, switch) for log in run(one(**{switch: False}), **{switch: True})] == [True]


def run(task: Any, model: Any = "mock/m", **options: Any) -> list[Any]:
    return eval(task, model, display="none", signals=(), **options)


def test_epochs_and_their_reducer_may_come_from_different_places(monkeypatch: pytest.MonkeyPatch) -> None:
    def logged(task: Task, **options: Any) -> tuple[int, list[str]]:
        [log] = run(task, **options)
        assert len(log.results.scores) == len(log.eval.config.epochs_reducer)
        return log.eval.config.epochs, log.eval.config.epochs_reducer

    def scored(**options: Any) -> Task:
        return one(scorer=includes(), **options)

    assert logged(scored()) == (1, ["mean"])
    monkeypatch.setenv("PROCTOR_EVAL_EPOCHS_REDUCER", "max,mode")
    monkeypatch.setenv("INSPECT_EVAL_EPOCHS", "2")
    assert logged(scored()) == (2, ["max", "mode"])
    assert logged(scored(epochs=3)) == (3, ["max", "mode"])
    assert logged(scored(epochs=Epochs(3, "median"))) == (3, ["median"])
    assert logged(scored(epochs=Epochs(3, "median")), epochs=4) == (4, ["median"])
    assert logged(scored(epochs=Epochs(3, "median")), epochs=Epochs(4, "mean")) == (4, ["mean"])


def test_the_configuration_of_the_log_is_the_one_that_was_used(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[GenerateConfig] = []

    def answer(_input: Any, _tools: Any, _choice: Any, config: GenerateConfig) -> str:
        seen.append(config)
        return "ok"

    monkeypatch.setenv("PROCTOR_EVAL_TEMPERATURE", "0.1")
    monkeypatch.setenv("PROCTOR_EVAL_TOP_P", "0.1")
    monkeypatch.setenv("PROCTOR_EVAL_MAX_TOKENS", "1")
    monkeypatch.setenv("INSPECT_EVAL_STOP_SEQS", "a,b")
    model = get_model("mock/m", custom_outputs=answer, config=GenerateConfig(temperature=0.2, top_p=0.2, top_k=2))
    [log] = run(one(config=GenerateConfig(temperature=0.3, top_p=0.3)), model, temperature=0.4)
    for config in (log.eval.model_generate_config, log.plan.config, seen[0]):
        assert (config.temperature, config.top_p, config.top_k, config.max_tokens) == (0.4, 0.3, 2, 1)
        assert config.stop_seqs == ["a", "b"]


def test_keys_in_headers_are_in_no_log_and_in_no_plan(tmp_path: Path) -> None:
    headers = [{"Authorization": "Bearer canary-1"}, {"Authorization": "Bearer canary-2"}]
    roles = {"grader": {"model": "mock/g", "extra_headers": {"X-Api-Key": "canary-3"}}}
    logs = run(one(), extra_headers=headers, model_roles=roles)
    assert [log.status for log in logs] == ["success"] * 2
    assert "canary" not in str(plan_report(one(), model="mock/m", extra_headers=headers).as_dict())
    for log in logs:
        told = repr([log, log_samples(log)])
        assert "canary" not in told
        assert "Authorization" in told


def test_the_calls_own_config_goes_before_all(monkeypatch: pytest.MonkeyPatch) -> None:
    @solver
    def cold() -> Any:
        async def solve(state: TaskState, generate: Any) -> TaskState:
            return await generate(state, temperature=0.0)

        return solve

    [log] = run(one(solver=cold()), temperature=0.4)
    [event] = [event for event in log_samples(log)[0].events if event.event == "model"]
    assert event.config.temperature == 0.0


def log_samples(log: Any) -> list[Any]:
    from proctor.log import read_eval_log

    return read_eval_log(log.location).samples


def test_other_models_are_told_only_by_their_own_config(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grader is no part of what the evaluation of another model was set to."""
    seen: list[GenerateConfig] = []

    def answer(_input: Any, _tools: Any, _choice: Any, config: GenerateConfig) -> str:
        seen.append(config)
        return "ok"

    grader = get_model("mock/grader", custom_outputs=answer, config=GenerateConfig(top_p=0.9))

    @solver
    def asking() -> Any:
        async def solve(state: TaskState, generate: Any) -> TaskState:
            await grader.generate("?", config=GenerateConfig(top_k=3))
            return state

        return solve

    monkeypatch.setenv("PROCTOR_EVAL_MAX_TOKENS", "1")
    run(one(solver=asking(), config=GenerateConfig(temperature=0.3)), temperature=0.4)
    assert seen == [GenerateConfig(top_p=0.9, top_k=3)]


def test_a_tasks_own_model_goes_before_the_environments_and_the_calls_before_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, other = one(model="mock/own", name="own"), one(name="other")

    def models(**options: Any) -> list[tuple[str, str]]:
        return [(run.task, run.model) for run in plan_report([own, other], **options).runs]

    with pytest.raises(UsageError, match="no model was given for task other"):
        models()
    monkeypatch.setenv("INSPECT_EVAL_MODEL", "mock/a, mock/b")
    assert models() == [("own", "mock/own"), ("other", "mock/a"), ("other", "mock/b")]
    monkeypatch.setenv("PROCTOR_EVAL_MODEL", "mock/c")
    assert models() == [("own", "mock/own"), ("other", "mock/c")]
    assert models(model="mock/d") == [("own", "mock/d"), ("other", "mock/d")]


def test_arguments_of_tasks_and_models_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    @task
    def counted(count: int = 1) -> Task:
        return Task([Sample("x") for _ in range(count)])

    monkeypatch.setenv("PROCTOR_EVAL_TASK_ARGS", "count=3")
    monkeypatch.setenv("PROCTOR_EVAL_MODEL_ARGS", "latency=0.001")
    monkeypatch.setenv("PROCTOR_EVAL_MODEL", "mock/m")
    [log] = run(counted, None)
    assert log.eval.dataset.samples == 3
    assert log.eval.model_args == {"latency": 0.001}
    [log] = run(counted, None, task_args={"count": 2})
    assert log.eval.dataset.samples == 2
    [log] = run(one(), None)  # a Task that is made already cannot be meant by a variable
    assert log.eval.dataset.samples == 1
    with pytest.raises(UsageError, match="cannot reach a Task object"):
        run(one(), None, task_args={"count": 2})


@pytest.mark.parametrize(
    ("variable", "value", "field", "expected"),
    [
        ("LIMIT", "2-3", "limit", (1, 3)), ("SAMPLE_ID", "1,2", "sample_id", ["1", "2"]),
        ("SAMPLE_SHUFFLE", "7", "sample_shuffle", 7), ("RETRY_ON_ERROR", "2", "retry_on_error", 2),
        ("MAX_SAMPLES", "2", "max_samples", 2), ("MAX_TASKS", "2", "max_tasks", 2),
        ("LOG_BUFFER", "5", "log_buffer", 5),
        ("MAX_SUBPROCESSES", "2", "max_subprocesses", 2), ("MAX_SANDBOXES", "2", "max_sandboxes", 2),
        ("NO_LOG_SAMPLES", "true", "log_samples", False), ("NO_FAIL_ON_ERROR", "true", "fail_on_error", False),
    ],
)  # fmt: skip
def test_every_option_can_be_a_variable_and_an_argument_goes_before_it(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, field: str, expected: Any
) -> None:
    tasks = Task([Sample("x") for _ in range(4)])
    monkeypatch.setenv(f"INSPECT_EVAL_{variable}", value)
    [log] = run(tasks)
    assert getattr(log.eval.config, field) == expected
    other: dict[str, Any] = {"limit": 4, "sample_id": 3, "log_samples": True, "fail_on_error": True}
    given = other.get(field, 3)
    [log] = run(tasks, **{field: given})
    assert getattr(log.eval.config, field) == given


def test_tags_and_metadata_and_the_folder_of_logs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INSPECT_EVAL_TAGS", "a,b")
    monkeypatch.setenv("PROCTOR_EVAL_METADATA", "who=me n=3")
    monkeypatch.setenv("INSPECT_LOG_DIR", str(tmp_path / "theirs"))
    [log] = run(one(tags=["own"]))
    assert log.eval.tags == ["own", "a", "b"]
    assert log.eval.metadata == {"who": "me", "n": 3}
    assert Path(log.location).parent == tmp_path / "theirs"
    monkeypatch.setenv("PROCTOR_EVAL_LOG_DIR", str(tmp_path / "ours"))
    [log] = run(one(), tags=["c"], metadata={})
    assert (log.eval.tags, log.eval.metadata) == (["c"], None)
    assert Path(log.location).parent == tmp_path / "ours"
    [log] = run(one(), log_dir=str(tmp_path / "given"))
    assert Path(log.location).parent == tmp_path / "given"


def test_nothing_is_scored_when_the_environment_says_so_but_for_a_call_that_wants_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("INSPECT_EVAL_NO_SCORE", "true")
    [log] = run(one(scorer=includes()))
    assert log.results.scores == []
    [log] = run(one(scorer=includes()), score=True)
    assert len(log.results.scores) == 1


def test_an_env_file_is_read_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_EVAL_MESSAGE_LIMIT", "")  # put back by monkeypatch after the file has set it
    monkeypatch.delenv("PROCTOR_EVAL_MESSAGE_LIMIT")
    (tmp_path / ".env").write_text("PROCTOR_EVAL_MESSAGE_LIMIT=9\n")
    assert limits(one())["message_limit"] == (9, ENVIRONMENT + "MESSAGE_LIMIT")


def test_quotas_are_kept_with_their_source(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits(one())["requests_per_minute"] == (None, "built-in")
    monkeypatch.setenv("PROCTOR_EVAL_REQUESTS_PER_MINUTE", "500")
    monkeypatch.setenv("PROCTOR_EVAL_TOKENS_PER_MINUTE", "90k")
    assert limits(one())["requests_per_minute"] == (500, ENVIRONMENT + "REQUESTS_PER_MINUTE")
    assert limits(one(), requests_per_minute=0)["requests_per_minute"] == (0, "eval() argument")
    assert limits(one())["tokens_per_minute"] == (90_000, ENVIRONMENT + "TOKENS_PER_MINUTE")


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("MAX_TASKS", "none", "max_tasks must be a whole number of at least 1, not 'none'"),
        ("TEMPERATURE", "hot", "temperature must be a number, not 'hot'"),
        ("PROMPT_LOGPROBS", "21", "prompt_logprobs: must be at most 20"),
        ("EPOCHS_REDUCER", "medium", "no reducer"),
        ("MODEL_ROLE", "grader=nobody/m", "nobody"),
        ("MODEL_ROLE", "grader={temperature: 0}", "grader needs a model's name"),
    ],
)
def test_a_refused_variable_is_named_with_its_value(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: str
) -> None:
    monkeypatch.setenv(f"INSPECT_EVAL_{variable}", value)
    with pytest.raises((OptionError, NotFoundError)) as caught:
        run(one())
    assert words.lower() in str(caught.value).lower()
    assert f"(from environment variable INSPECT_EVAL_{variable})" in str(caught.value)


def test_a_display_that_there_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INSPECT_DISPLAY", "neon")
    with pytest.raises(NotFoundError, match="neon"):
        eval(one(), "mock/m", signals=())
