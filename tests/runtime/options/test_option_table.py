"""Flags, environment variables and parameters of `eval` are one thing, written down once."""

from __future__ import annotations

import inspect
import os
from typing import Any

import attrs
import pytest

from proctor.errors import OptionError
from proctor.evaluation.api import eval
from proctor.model import GenerateConfig
from proctor.runtime.options import OPTIONS, Option, from_flags, said_in_environment
from proctor.runtime.options.table import AWAITED, COMMAND_LINE_ONLY, REDUCER, ROWS, WITHOUT_FLAG
from proctor.runtime.settings import Resolved

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
    "cache": ("12h", "12h"),
    "log-format": ("json", "json"),
    "log-level": ("info", "info"),
    "log-level-transcript": ("info", "info"),
    "async-backend": ("trio", "trio"),
    "reasoning-mode": ("pro", "pro"),
    "temperature": ("0.5", 0.5),
    "top-p": ("0.5", 0.5),
    "frequency-penalty": ("0.5", 0.5),
    "presence-penalty": ("0.5", 0.5),
    "no-fail-on-error": ("true", False),
    "requests-per-minute": ("60", 60),
    "tokens-per-minute": ("90k", 90_000),
    "epochs-reducer": ("mean,max", ["mean", "max"]),
}


def example(option: Option) -> tuple[Any, Any]:
    if option.name in EXAMPLES:
        return EXAMPLES[option.name]
    if option.form == "many":
        return ["a=1", "b=x"], {"a": 1, "b": "x"}
    if option.form == "switch":
        return True, True
    if option.metavar in {"N", "SECONDS", "MB"}:
        return "7", 7
    if option.metavar in {"X", "DOLLARS"}:
        return "0.5", 0.5
    if option.metavar == "WORD":
        return "low" if "low" in option.help else "auto", "low" if "low" in option.help else "auto"
    return "some text", "some text"


def test_every_flag_sets_a_parameter_that_eval_has() -> None:
    assert {option.parameter for option in OPTIONS} - COMMAND_LINE_ONLY - {REDUCER} <= TAKEN


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


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("PROCTOR_", "INSPECT_")):
            monkeypatch.delenv(name)


@pytest.mark.parametrize("option", ROWS, ids=lambda option: option.name)
def test_a_flag_and_its_variables_give_eval_the_same_value(option: Option, monkeypatch: pytest.MonkeyPatch) -> None:
    text, expected = example(option)
    assert from_flags(ROWS, {option.key: text}) == {option.parameter: expected}
    written = " ".join(text) if isinstance(text, list) else "true" if text is True else text
    for variable in (f"PROCTOR_EVAL_{option.key.upper()}", f"INSPECT_EVAL_{option.key.upper()}", *option.variables):
        with monkeypatch.context() as patch:
            patch.setenv(variable, written)
            assert said_in_environment([option]) == {
                option.parameter: Resolved(expected, f"environment variable {variable}")
            }


@pytest.mark.parametrize("option", [o for o in ROWS if o.grid], ids=lambda option: option.name)
def test_a_field_that_can_be_varied_takes_a_list_from_flag_and_variable(
    option: Option, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, expected = example(option)
    assert option.value(f"{text}, {text}") == [expected, expected]
    monkeypatch.setenv(f"PROCTOR_EVAL_{option.key.upper()}", f"{text},{text}")
    assert said_in_environment([option])[option.parameter].value == [expected, expected]


def test_what_can_be_varied_are_the_numbers_and_words_of_the_configuration() -> None:
    """Texts have commas of their own, switches have no value, and mappings and lists are written with commas."""
    fields = {a.name for a in attrs.fields(GenerateConfig)}
    unvaried = {
        "system_message", "stop_seqs", "logit_bias", "logprobs", "parallel_tool_calls", "internal_tools",
        "fallback_models", "fail_on_refusal", "extra_headers", "extra_body", "cache",
    }  # fmt: skip
    of_config = {option.parameter for option in OPTIONS} & fields
    assert {option.parameter for option in OPTIONS if option.grid} == of_config - unvaried


def said(monkeypatch: pytest.MonkeyPatch, **variables: str) -> dict[str, Any]:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return {name: resolved.value for name, resolved in said_in_environment().items()}


def test_our_variable_goes_before_inspects(monkeypatch: pytest.MonkeyPatch) -> None:
    found = said(monkeypatch, PROCTOR_EVAL_MAX_TASKS="2", INSPECT_EVAL_MAX_TASKS="3", INSPECT_EVAL_EPOCHS="4")
    assert found == {"max_tasks": 2, "epochs": 4}


def test_values_of_several_names_in_one_variable_may_hold_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "who=me note=two words  grader={model: mock/m, temperature: 0} n=3"
    assert said(monkeypatch, INSPECT_EVAL_METADATA=text)["metadata"] == {
        "who": "me", "note": "two words", "grader": {"model": "mock/m", "temperature": 0}, "n": 3,
    }  # fmt: skip


def test_an_empty_variable_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, PROCTOR_EVAL_MAX_TASKS="", PROCTOR_EVAL_NO_SCORE="") == {}


def test_a_switch_can_be_turned_off_by_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, INSPECT_EVAL_NO_SCORE="true") == {"score": False}
    assert said(monkeypatch, PROCTOR_EVAL_SCORE="true") == {"score": True}


def test_a_variable_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="max_tasks must be a whole number of at least 1, not 'x'") as caught:
        said(monkeypatch, INSPECT_EVAL_MAX_TASKS="x")
    assert str(caught.value).endswith("(from environment variable INSPECT_EVAL_MAX_TASKS)")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("true", True), ("0", False), ("0.0", False), ("false", False), ("0.25", 0.25), ("3", 3.0)],
)
def test_what_fail_on_error_takes(text: str, expected: object) -> None:
    found = from_flags(OPTIONS, {"fail_on_error": text})["fail_on_error"]
    assert found == expected
    assert type(found) is type(expected)


def test_the_opposite_of_fail_on_error_is_an_option_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert from_flags(OPTIONS, {"no_fail_on_error": "true"}) == {"fail_on_error": False}
    assert from_flags(OPTIONS, {"no_fail_on_error": "false"}) == {}
    assert from_flags(OPTIONS, {"fail_on_error": "false", "no_fail_on_error": "true"}) == {"fail_on_error": False}
    assert said(monkeypatch, INSPECT_EVAL_NO_FAIL_ON_ERROR="true") == {"fail_on_error": False}


def test_fail_on_error_and_its_opposite_contradict_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="--fail-on-error and --no-fail-on-error contradict each other"):
        from_flags(OPTIONS, {"fail_on_error": "true", "no_fail_on_error": "true"})
    with pytest.raises(OptionError, match="unset one of them") as caught:
        said(monkeypatch, PROCTOR_EVAL_FAIL_ON_ERROR="0.5", INSPECT_EVAL_NO_FAIL_ON_ERROR="true")
    assert "PROCTOR_EVAL_FAIL_ON_ERROR" in str(caught.value)
    assert "INSPECT_EVAL_NO_FAIL_ON_ERROR" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"), [("500", 500), ("90k", 90_000), ("1.5m", 1_500_000), ("0", 0), (".5", 0.5)]
)
def test_what_a_quota_takes(text: str, expected: float) -> None:
    assert from_flags(OPTIONS, {"requests_per_minute": text}) == {"requests_per_minute": expected}


BAD = {
    "max_tasks": "0", "max_samples": "-1", "max_connections": "many", "max_retries": "-1", "epochs": "0",
    "limit": "5-1", "temperature": "hot", "token_limit": "lots", "time_limit": "0", "fail_on_error": "-0.5",
    "retry_on_error": "-1",
    "sample_shuffle": "often", "adaptive_connections": "4-", "async_backend": "curio", "log_level": "loud",
    "extra_body": "[1]", "extra_headers": "x", "sample_id": ",", "logit_bias": "1", "reasoning_effort": "some",
    "top_k": "1.5", "temperature ": "0,hot", "max_subprocesses": "0", "max_sandboxes": "-1", "max_total_samples": "0",
    "requests_per_minute": "-1", "tokens_per_minute": "lots",
}  # fmt: skip


@pytest.mark.parametrize(("key", "text"), BAD.items())
def test_a_value_that_cannot_be_meant_is_refused_with_the_flag_and_what_is_meant(key: str, text: str) -> None:
    key = key.strip()  # a second text for one option
    flag = "--" + key.replace("_", "-")
    with pytest.raises(OptionError) as caught:
        from_flags(OPTIONS, {key: text})
    assert str(caught.value).startswith(f"{flag} must be ")
    assert repr(text) in str(caught.value)
