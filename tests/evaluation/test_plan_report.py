"""What `proctor plan` knows of a plan before anything runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from proctor import Task, eval
from proctor.cli.planned import lines
from proctor.dataset import Sample
from proctor.errors import DatasetError, OptionError, UsageError
from proctor.evaluation import fit
from proctor.evaluation.call import EvalCall
from proctor.evaluation.report import plan_report
from proctor.model import ChatMessageUser, ModelAPI, ModelOutput, get_model, modelapi
from proctor.runtime import descriptors as module
from proctor.runtime.cpus import cpus
from proctor.runtime.descriptors import UNLIMITED, Descriptors


@modelapi("networked")
class NetworkedAPI(ModelAPI):
    """A model that is called over a network, as far as a plan can tell; it must never be called here."""

    def __init__(self, model_name: str, base_url: str | None = None, **options: Any) -> None:
        super().__init__(model_name, base_url or "http://127.0.0.1:9")

    async def generate(self, input: Any, tools: Any, tool_choice: Any, config: Any) -> ModelOutput:
        raise AssertionError("called while planning")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("PROCTOR_", "INSPECT_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def many(count: int = 30, **options: Any) -> Task:
    return Task([Sample("x") for _ in range(count)], **options)


def test_runs_are_in_plan_order_and_counted(tmp_path: Path) -> None:
    found = plan_report(
        [many(5, name="a"), many(7, name="b")], model=["networked/x", "networked/y"], temperature=[0, 1], epochs=2,
        limit=6,
    )  # fmt: skip
    assert [(r.number, r.task, r.model, r.varied["temperature"], r.samples, r.total) for r in found.runs] == [
        (1, "a", "networked/x", 0, 5, 10), (2, "a", "networked/x", 1, 5, 10), (3, "b", "networked/x", 0, 6, 12),
        (4, "b", "networked/x", 1, 6, 12), (5, "a", "networked/y", 0, 5, 10), (6, "a", "networked/y", 1, 5, 10),
        (7, "b", "networked/y", 0, 6, 12), (8, "b", "networked/y", 1, 6, 12),
    ]  # fmt: skip
    assert found.total == 88
    assert list(tmp_path.iterdir()) == [], "planning leaves nothing"


def test_as_many_tasks_at_once_as_models_unless_told_otherwise() -> None:
    def max_tasks(*models: str, **options: Any) -> tuple[Any, str]:
        found = plan_report([many(), many()], model=list(models), **options).limits[0]
        assert found.name == "max_tasks"
        return found.value, found.source

    assert max_tasks("mock/a") == (1, "built-in")
    assert max_tasks("mock/a", "mock/b", "mock/c") == (3, "built-in")
    assert max_tasks("mock/a", temperature=[0, 1, 2]) == (1, "built-in")
    assert max_tasks("mock/a", "mock/b", max_tasks=7) == (7, "eval() argument")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_connections": 20, "max_samples": 19}, "max_samples"),
        ({"max_connections": 20, "max_total_samples": 19}, "max_total_samples"),
        ({"max_connections": 20, "max_samples": 20}, None),
        ({"max_connections": 20}, None),
        ({"max_samples": 9}, "max_samples"),
        ({"max_connections": 20, "max_samples": 10, "max_tasks": 2}, None),
        ({"max_connections": 20, "max_samples": 9, "max_tasks": 2}, "max_samples"),
    ],
)
def test_connections_that_can_never_all_be_used_are_told(options: dict[str, Any], named: str | None) -> None:
    """Tasks of one model that run at once fill its connections together."""
    warnings = plan_report([many(), many()], model="mock/m", **options).warnings
    assert len(warnings) == (named is not None)
    if named is not None:
        assert warnings[0].startswith("mock/m: at most ")
        assert f"({named})" in warnings[0]
        assert f"raise {named} or lower max_connections" in warnings[0]


@pytest.mark.parametrize(
    ("options", "models", "seconds"),
    [
        ({"requests_per_minute": 60}, 1, 100), ({"requests_per_minute": 600}, 1, 10), ({}, 1, None),
        ({"requests_per_minute": 0}, 1, None), ({"requests_per_minute": 60, "epochs": 3}, 1, 300),
        # Two models have a quota each; one after the other they take twice as long.
        ({"requests_per_minute": 60}, 2, 100), ({"requests_per_minute": 60, "max_tasks": 1}, 2, 200),
    ],
)  # fmt: skip
def test_a_quota_gives_the_shortest_possible_time(options: dict[str, Any], models: int, seconds: float | None) -> None:
    names = [f"mock/{number}" for number in range(models)]
    found = plan_report([many(60), many(40)], model=names, **options)
    assert found.seconds == seconds
    assert len(found.quotas) == (0 if seconds is None else models)


def needed(count: int = 300, **options: Any) -> int:
    return int(plan_report([many(count), many(count)], model="networked/m", **options).descriptors["needed"] or 0)


def test_descriptors_are_what_can_be_in_flight_and_no_more() -> None:
    assert needed(max_connections=200) == needed(max_connections=100) + 100
    assert needed(max_connections=200, max_samples=50) == needed(max_connections=100, max_samples=50)
    assert needed(max_connections=200, count=40) == needed(max_connections=40), "there are no more samples"
    assert needed(max_connections=200, count=40, max_tasks=2) == needed(max_connections=80, max_tasks=2)
    assert needed(max_connections=200, max_total_samples=30) == needed(max_connections=30)
    assert needed(max_connections=200, model_roles={"grader": "networked/g"}) == needed(max_connections=200) + 20
    assert needed(max_connections=200, model_roles={"grader": "mock/g"}) == needed(max_connections=200)
    local = plan_report(many(300), model="mock/m", max_connections=5000).descriptors["needed"]
    assert local is not None
    assert local < 200, "a model in this process takes none"


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that allows 300 open files, 100 of them without asking."""
    limits = Descriptors(100, 300)

    def raised(wanted: int = 0) -> Descriptors:
        nonlocal limits
        limits = Descriptors(max(limits.soft, min(wanted, 300)), 300)
        return limits

    monkeypatch.setattr(fit, "raise_descriptors", raised)
    for place in (fit, module):
        monkeypatch.setattr(place, "descriptors", lambda: limits)
    monkeypatch.setattr("proctor.evaluation.report.descriptors", lambda: limits)


@pytest.mark.usefixtures("narrow")
def test_a_plan_that_cannot_fit_says_so_before_it_starts(tmp_path: Path) -> None:
    found = plan_report(many(300), model="networked/m", max_connections=400)
    assert not found.fits
    assert len(found.warnings) == 1
    assert "at most 300: lower max_connections" in found.warnings[0]
    with pytest.raises(OptionError, match="at most 300: lower max_connections"):
        eval(many(300), "networked/m", max_connections=400, display="none", signals=())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("narrow")
def test_a_plan_that_fits_after_raising_the_soft_limit_runs() -> None:
    model = get_model("mock/m")
    assert plan_report(many(3), model=model, max_connections=150).fits
    [log] = eval(many(3), model, max_connections=150, display="none", signals=())
    assert log.status == "success"
    assert fit.descriptors().soft == 300


def test_mistakes_are_those_of_a_run() -> None:
    with pytest.raises(DatasetError, match="no samples"):
        plan_report(Task([]), model="mock/m")
    with pytest.raises(UsageError, match="begins after the last"):
        plan_report(many(3), model="mock/m", limit=(10, 20))
    with pytest.raises(OptionError, match="max_tasks"):
        plan_report(many(3), model="mock/m", max_task=2)
    with pytest.raises(UsageError, match="no model was given"):
        plan_report(many(3))


def test_without_a_limit_of_the_system_everything_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.evaluation.report.descriptors", lambda: Descriptors(UNLIMITED, UNLIMITED))
    found = plan_report(many(), model="networked/m", max_connections=10**6)
    assert found.fits
    assert found.descriptors["allowed"] is None


def limits_of(model: str, **options: Any) -> dict[str, tuple[Any, str, str]]:
    [run] = plan_report(many(), model=model, **options).runs
    return {limit.name: (limit.value, limit.source, limit.note) for limit in run.limits}


def test_connections_that_pacing_adapts_are_told_with_their_bounds() -> None:
    found = limits_of("networked/m")
    note = "1 to 1,000, from 20 on; one call until the first answer"
    assert found["max_connections"] == ("adaptive", "built-in", note)
    assert found["max_samples"] == (4000, "built-in", "at most; as many as the model has room for")
    assert found["adaptive_connections"] == (True, "built-in", "")
    found = limits_of("networked/m", adaptive_connections="2-30")
    note = "2 to 30, from 20 on; one call until the first answer"
    assert found["max_connections"] == ("adaptive", "eval() argument", note)
    assert limits_of("networked/m", max_samples=7)["max_samples"] == (7, "eval() argument", "")


def test_connections_that_are_fixed_are_told_with_the_reason() -> None:
    found = limits_of("networked/m", adaptive_connections=False)
    assert found["max_connections"] == (10, "provider", "")
    assert found["max_samples"] == (11, "built-in", "max_connections + 1")
    assert limits_of("mock/m")["adaptive_connections"] == (
        True,
        "built-in",
        "off: the provider has a number of its own",
    )
    found = limits_of("mock/m", adaptive_connections=4)
    assert found["max_connections"][:2] == (4, "eval() argument")
    assert found["max_samples"][0] == 5
    found = limits_of("networked/m", max_connections=3)
    assert found["max_connections"] == (3, "eval() argument", "")
    assert found["adaptive_connections"][2] == "off: max_connections is given"


def test_where_descriptors_are_few_pacing_stays_below_them(monkeypatch: pytest.MonkeyPatch) -> None:
    found = plan_report([many(300), many(300)], model="networked/m")
    assert found.descriptors["needed"] == needed(max_connections=20)
    assert found.warnings == ()
    plan = [many(300)]
    call = EvalCall.of({"tasks": plan, "model": "networked/m"})
    planned = call.plan()
    least = fit.descriptors_needed(planned, None)
    assert fit.connection_ceiling(planned, None, Descriptors(least, least)) == 20
    assert fit.connection_ceiling(planned, None, Descriptors(least + 80, least + 80)) == 100
    with_grader = EvalCall.of({"tasks": plan, "model": "networked/m", "model_roles": {"grader": "networked/g"}}).plan()
    least = fit.descriptors_needed(with_grader, None)
    assert fit.connection_ceiling(with_grader, None, Descriptors(least + 80, least + 80)) == 60


def test_commands_take_descriptors_as_far_as_samples_can_run_them() -> None:
    plain = needed(max_connections=20)
    assert needed(max_connections=20, max_subprocesses=50) == plain + 4 * 21, "a sample runs one at a time"
    assert needed(max_connections=20, max_subprocesses=5) == plain + 4 * 5
    assert needed(max_connections=20, max_subprocesses=5, max_total_samples=3) == (
        needed(max_connections=20, max_total_samples=3) + 4 * 3
    )
    sandboxed = [Sample("x", sandbox="local") for _ in range(300)]
    found = plan_report([Task(sandboxed), many(300)], model="networked/m", max_connections=20)
    assert found.descriptors["needed"] == plain + 4 * min(cpus(), 21)


def test_sandboxes_of_samples_are_told_too() -> None:
    samples = [Sample("x", sandbox="local"), Sample("y"), Sample("z", sandbox="local")]
    [run] = plan_report(Task(samples), model="mock/m", max_sandboxes=2, max_samples=2).runs
    limits = {limit.name: (limit.value, limit.source) for limit in run.limits}
    assert limits["sandbox"] == ("local", "samples")
    assert limits["sandboxes at once"] == (2, "eval() argument")


def test_tasks_that_run_at_once_share_sandboxes() -> None:
    tasks = [many(name=name, sandbox="local") for name in "ab"]
    options: dict[str, Any] = {"model": "mock/m", "max_sandboxes": 6, "max_samples": 4, "max_connections": 3}
    assert plan_report(tasks, **options, max_tasks=1).warnings == ()
    [warning] = plan_report(tasks, **options, max_tasks=2).warnings
    assert warning.startswith("local: at most 6 sandboxes live at once (max_sandboxes, eval() argument), so that max_s")
    assert "max_samples 8 of 2 tasks at once cannot be reached; raise max_sandboxes or lower max_samples" in warning


def test_a_quota_of_tokens_gives_a_time_by_the_length_of_the_inputs() -> None:
    """Four characters a token; what the model answers is not known, so that it can only take longer."""
    task = Task([Sample("x" * 400), Sample([ChatMessageUser(content="y" * 200)])])
    found = plan_report(task, model="mock/m", tokens_per_minute=60, epochs=2, requests_per_minute=120)
    requests, tokens = found.quotas
    assert (requests.calls, requests.seconds, requests.tokens) == (4, 2, None)
    assert (tokens.calls, tokens.seconds, tokens.tokens) == (4, 300, 300)
    assert found.seconds == 300
    assert plan_report(task, model="mock/m", tokens_per_minute=0).seconds is None
    assert plan_report(task, model="mock/m", tokens_per_minute=6000, requests_per_minute=1, limit=1).seconds == 60
    said = list(lines(found))
    told = "mock/m: 4 calls (one a sample) with about 300 tokens of input at 60 tokens a minute take at least"
    assert any(line.startswith(told) for line in said), said
