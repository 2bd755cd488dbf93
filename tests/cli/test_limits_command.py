"""Limits on samples and budgets of runs, from flags and from variables, down to the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proctor.log import EvalLog, read_eval_log

TASK = """
from proctor import Task, task
from proctor.dataset import Sample
from proctor.scorer import includes
from proctor.solver import solver

@solver
def insist():
    async def solve(state, generate):
        for _ in range(5):
            state = await generate(state)
        return state
    return solve

@task
def insisting():
    return Task([Sample("q", target="Default") for _ in range(20)], solver=insist(), scorer=includes())
"""


def evaluated(cli: Any, folder: Path, *flags: str) -> tuple[int, EvalLog]:
    (folder / "insisting.py").write_text(TASK)
    outcome = cli("eval", "insisting.py", "--model", "mock/m", "--display", "none", "--log-dir", "out", *flags)
    [file] = (folder / "out").glob("*.eval")
    return outcome.code, read_eval_log(str(file))


@pytest.mark.parametrize(
    ("flag", "variable", "value", "kind"),
    [
        ("--message-limit", "PROCTOR_EVAL_MESSAGE_LIMIT", "4", "message"),
        ("--token-limit", "INSPECT_EVAL_TOKEN_LIMIT", "output:0.01k", "token"),
        ("--turn-limit", "PROCTOR_EVAL_TURN_LIMIT", "2", "turn"),
    ],
)
@pytest.mark.parametrize("said_by", ["flag", "variable"])
def test_a_limit_on_samples(
    cli: Any,
    clean: Path,
    monkeypatch: pytest.MonkeyPatch,
    flag: str,
    variable: str,
    value: str,
    kind: str,
    said_by: str,
) -> None:
    if said_by == "variable":
        monkeypatch.setenv(variable, value)
    code, log = evaluated(cli, clean, *([flag, value] if said_by == "flag" else []))
    assert code == 0
    assert log.samples is not None
    assert {sample.limit.type for sample in log.samples if sample.limit} == {kind}
    assert len(log.samples) == 20


@pytest.mark.parametrize("said_by", ["flag", "variable"])
def test_a_limit_on_cost_with_prices_from_a_file(
    cli: Any, clean: Path, monkeypatch: pytest.MonkeyPatch, said_by: str
) -> None:
    (clean / "prices.json").write_text('{"mock/m": {"input": 0, "output": 1000000}}')
    said = {"MODEL_COST_CONFIG": "prices.json", "COST_LIMIT": "7"}
    flags = [part for name, value in said.items() for part in (f"--{name.lower().replace('_', '-')}", value)]
    if said_by == "variable":
        for name, value in said.items():
            monkeypatch.setenv(f"INSPECT_EVAL_{name}", value)
    code, log = evaluated(cli, clean, *(flags if said_by == "flag" else []))
    assert code == 0
    assert log.eval.config.cost_limit == 7
    assert log.samples is not None
    assert all(sample.limit and sample.limit.type == "cost" for sample in log.samples)


@pytest.mark.parametrize("said_by", ["flag", "variable"])
def test_a_budget_of_the_run(cli: Any, clean: Path, monkeypatch: pytest.MonkeyPatch, said_by: str) -> None:
    if said_by == "variable":
        monkeypatch.setenv("PROCTOR_EVAL_MAX_TOTAL_TOKENS", "0.2k")
    flags = ["--max-total-tokens", "0.2k"] if said_by == "flag" else []
    code, log = evaluated(cli, clean, "--max-samples", "1", *flags)
    assert code == 1  # not all of it was run
    assert log.status == "cancelled"
    assert log.error is not None
    assert "max_total_tokens" in log.error.message
    assert log.samples is not None
    assert 0 < len(log.samples) < 20
    assert not any(sample.error for sample in log.samples)


def test_a_limit_on_cost_without_prices_is_a_mistake(cli: Any, clean: Path) -> None:
    (clean / "insisting.py").write_text(TASK)
    outcome = cli("eval", "insisting.py", "--model", "mock/m", "--display", "none", "--max-total-cost", "5")
    assert outcome.code == 2
    assert "--model-cost-config" in outcome.err


@pytest.mark.parametrize("flag", ["--turn-limit=0", "--token-limit=x:5", "--cost-limit=-1", "--max-run-time=0"])
def test_what_is_no_limit_is_refused(cli: Any, clean: Path, flag: str) -> None:
    outcome = cli("eval", "insisting.py", "--model", "mock/m", flag)
    assert outcome.code == 2
    assert flag.partition("=")[0] in outcome.err
