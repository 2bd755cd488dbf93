"""Flags, environment variables and parameters of `eval` are one thing, written down once."""

from __future__ import annotations

import inspect
from typing import Any

import attrs
import pytest

from proctor.cli.options import Option, arguments, from_environment, from_flags
from proctor.cli.table import AWAITED, HANDLED_HERE, OPTIONS, ROWS, WITHOUT_FLAG
from proctor.errors import OptionError
from proctor.evaluation.api import eval
from proctor.evaluation.task import Epochs
from proctor.model import GenerateConfig

NAMED = {p.name for p in inspect.signature(eval).parameters.values() if p.kind is not p.VAR_KEYWORD}
TAKEN = NAMED | {a.name for a in attrs.fields(GenerateConfig)}

# For each reading function: a text it takes and the value that must come of it.
EXAMPLES: dict[str, tuple[Any, Any]] = {
    "limit": ("10-20", (9, 20)),
    "sample-id": ("a, 2", ["a", "2"]),
    "sample-shuffle": ("42", 42),
    "epochs": ("3", 3),
    "adaptive-connections": ("4-80", "4-80"),
    "token-limit": ("500k", 500_000),
    "time-limit": ("1.5", 1.5),
    "fail-on-error": ("0.1", 0.1),
    "retry-on-error": ("2", 2),
    "tags": ("a,b", ["a", "b"]),
    "logit-bias": ("1=2", {1: 2.0}),
    "stop-seqs": ("a,b", ["a", "b"]),
    "fallback-models": ("a,b", ["a", "b"]),
    "extra-headers": ("{a: b}", {"a": "b"}),
    "extra-body": ("{a: b}", {"a": "b"}),
    "cache-prompt": ("auto", "auto"),
    "log-format": ("json", "json"),
    "log-level": ("info", "info"),
    "async-backend": ("trio", "trio"),
    "reasoning-mode": ("pro", "pro"),
    "temperature": ("0.5", 0.5),
    "top-p": ("0.5", 0.5),
    "frequency-penalty": ("0.5", 0.5),
    "presence-penalty": ("0.5", 0.5),
    "no-fail-on-error": ("true", True),
    "epochs-reducer": ("mean,max", ["mean", "max"]),
}


def example(option: Option) -> tuple[Any, Any]:
    if option.name in EXAMPLES:
        return EXAMPLES[option.name]
    if option.form == "many":
        return ["a=1", "b=x"], {"a": 1, "b": "x"}
    if option.form == "switch":
        return True, True
    if option.metavar in {"N", "SECONDS"}:
        return "7", 7
    if option.metavar == "WORD":
        return "low" if "low" in option.help else "auto", "low" if "low" in option.help else "auto"
    return "some text", "some text"


def test_every_flag_sets_a_parameter_that_eval_has() -> None:
    assert {option.parameter for option in OPTIONS} - HANDLED_HERE <= TAKEN


def test_every_parameter_of_eval_has_a_flag_or_is_named_as_having_none() -> None:
    assert TAKEN - {option.parameter for option in OPTIONS} == WITHOUT_FLAG


def test_what_is_awaited_is_not_there_yet() -> None:
    assert not AWAITED & TAKEN, "eval has it now: take it out of AWAITED, so that its flag is offered"
    assert {option.parameter for option in ROWS} >= AWAITED


def test_names_are_unique_and_every_row_is_explained() -> None:
    names = [option.name for option in ROWS]
    assert len(names) == len(set(names))
    keys = {option.key for option in ROWS}
    assert len(keys) == len(ROWS)
    assert all(option.help.endswith(".") and option.group for option in ROWS)


@pytest.mark.parametrize("option", ROWS, ids=lambda option: option.name)
def test_a_flag_and_its_variables_give_eval_the_same_value(option: Option, monkeypatch: pytest.MonkeyPatch) -> None:
    from proctor.runtime.settings import environ, eval_option

    text, expected = example(option)
    assert from_flags(ROWS, {option.key: text}) == {option.key: expected}
    written = " ".join(text) if isinstance(text, list) else "true" if text is True else text
    for variable in (f"PROCTOR_EVAL_{option.key.upper()}", f"INSPECT_EVAL_{option.key.upper()}", *option.variables):
        with monkeypatch.context() as patch:
            patch.setenv(variable, written)
            assert from_environment([option], eval_option, environ) == {option.key: expected}


def environment(monkeypatch: pytest.MonkeyPatch, **variables: str) -> dict[str, Any]:
    from proctor.runtime.settings import environ, eval_option

    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return from_environment(OPTIONS, eval_option, environ)


def test_a_flag_goes_before_our_variable_and_ours_before_inspects(monkeypatch: pytest.MonkeyPatch) -> None:
    found = environment(monkeypatch, PROCTOR_EVAL_MAX_TASKS="2", INSPECT_EVAL_MAX_TASKS="3", INSPECT_EVAL_EPOCHS="4")
    assert arguments(OPTIONS, {}, found) == {"max_tasks": 2, "epochs": 4}
    assert arguments(OPTIONS, {"max_tasks": 1}, found) == {"max_tasks": 1, "epochs": 4}


def test_a_switch_can_be_turned_off_by_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment(monkeypatch, INSPECT_EVAL_NO_SCORE="true")["score"] is False
    assert environment(monkeypatch, PROCTOR_EVAL_SCORE="true")["score"] is True


def test_a_variable_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="--max-tasks must be a whole number of at least 1, not 'x'") as caught:
        environment(monkeypatch, INSPECT_EVAL_MAX_TASKS="x")
    assert "environment variable INSPECT_EVAL_MAX_TASKS" in str(caught.value)


def test_epochs_and_their_reducers_come_together() -> None:
    made = arguments(OPTIONS, {"epochs": 3, "epochs_reducer": ["mean", "max"]}, {})["epochs"]
    assert isinstance(made, Epochs)
    assert (made.epochs, len(made.reducer or [])) == (3, 2)
    again = arguments(OPTIONS, {"epochs": 3}, {"epochs": 5, "epochs_reducer": ["max"]})["epochs"]
    assert (again.epochs, len(again.reducer or [])) == (3, 1)


def test_a_reducer_without_epochs_is_refused() -> None:
    with pytest.raises(OptionError, match="--epochs-reducer needs --epochs"):
        arguments(OPTIONS, {"epochs_reducer": ["mean"]}, {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [("true", True), ("0", False), ("0.0", False), ("false", False), ("0.25", 0.25), ("3", 3.0)],
)
def test_what_fail_on_error_takes(text: str, expected: object) -> None:
    found = arguments(OPTIONS, from_flags(OPTIONS, {"fail_on_error": text}), {})["fail_on_error"]
    assert found == expected
    assert type(found) is type(expected)


def test_fail_on_error_and_its_opposite_contradict_each_other() -> None:
    with pytest.raises(OptionError, match="contradict"):
        arguments(OPTIONS, {"fail_on_error": True, "no_fail_on_error": True}, {})


def test_the_opposite_flag_silences_the_variable() -> None:
    assert arguments(OPTIONS, {"no_fail_on_error": True}, {"fail_on_error": True}) == {"fail_on_error": False}
    assert arguments(OPTIONS, {"fail_on_error": 0.5}, {"no_fail_on_error": True}) == {"fail_on_error": 0.5}


BAD = {
    "max_tasks": "0", "max_samples": "-1", "max_connections": "many", "max_retries": "-1", "epochs": "0",
    "limit": "5-1", "temperature": "hot", "token_limit": "lots", "time_limit": "0", "fail_on_error": "-0.5",
    "retry_on_error": "-1",
    "sample_shuffle": "often", "adaptive_connections": "4-", "async_backend": "curio", "log_level": "loud",
    "extra_body": "[1]", "extra_headers": "x", "sample_id": ",", "logit_bias": "1", "reasoning_effort": "some",
    "top_k": "1.5",
}  # fmt: skip


@pytest.mark.parametrize(("key", "text"), BAD.items())
def test_a_value_that_cannot_be_meant_is_refused_with_the_flag_and_what_is_meant(key: str, text: str) -> None:
    flag = "--" + key.replace("_", "-")
    with pytest.raises(OptionError) as caught:
        from_flags(OPTIONS, {key: text})
    assert str(caught.value).startswith(f"{flag} must be ")
    assert repr(text) in str(caught.value)
