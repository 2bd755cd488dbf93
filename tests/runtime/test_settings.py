"""Settings, where each value came from, the environment and ``.env`` files."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.errors import OptionError
from proctor.runtime.dotenv import parse_dotenv
from proctor.runtime.settings import (
    BUILT_IN,
    Resolved,
    Settings,
    async_backend,
    cpus,
    environ,
    eval_option,
    load_dotenv,
    real_number,
    resolve,
    truth,
    whole_number,
)


@pytest.fixture(autouse=True)
def clean_environment() -> Iterator[None]:
    before = dict(os.environ)
    for name in list(os.environ):
        if name.startswith(("PROCTOR_", "INSPECT_")):
            del os.environ[name]
    yield
    os.environ.clear()
    os.environ.update(before)


def test_the_last_layer_that_speaks_decides_and_is_remembered() -> None:
    assert resolve(10, (None, "environment"), (5, "task"), (None, "argument")) == Resolved(5, "task")
    assert resolve(10, (4, "environment"), (5, "task"), (6, "argument")) == Resolved(6, "argument")
    assert resolve(10) == Resolved(10, BUILT_IN)


def test_zero_and_false_are_values() -> None:
    assert resolve(1, (0, "argument")).value == 0
    assert resolve(True, (False, "argument")).value is False


def test_proctors_variable_goes_before_inspects() -> None:
    assert eval_option("max-connections") == (None, "")
    os.environ["INSPECT_EVAL_MAX_CONNECTIONS"] = "7"
    assert eval_option("max-connections") == ("7", "environment variable INSPECT_EVAL_MAX_CONNECTIONS")
    os.environ["PROCTOR_EVAL_MAX_CONNECTIONS"] = "8"
    assert eval_option("--max_connections") == ("8", "environment variable PROCTOR_EVAL_MAX_CONNECTIONS")


def test_an_empty_variable_counts_as_unset() -> None:
    os.environ["PROCTOR_EVAL_MODEL"] = ""
    os.environ["INSPECT_EVAL_MODEL"] = "mock/a"
    assert eval_option("model")[0] == "mock/a"
    assert environ("PROCTOR_EVAL_MODEL") is None


def test_settings_remember_where_each_came_from() -> None:
    os.environ["PROCTOR_EVAL_MAX_SANDBOXES"] = "3"
    settings = Settings.resolve(source="eval() argument", max_subprocesses=2, max_total_samples=None)
    assert settings.resolved("max_subprocesses") == Resolved(2, "eval() argument")
    assert settings.resolved("max_sandboxes") == Resolved(3, "environment variable PROCTOR_EVAL_MAX_SANDBOXES")
    assert settings.resolved("max_total_samples") == Resolved(None, BUILT_IN)


@pytest.mark.parametrize(("value", "told"), [(0, "0"), (-1, "-1"), (True, "True"), (2.5, "2.5"), ("many", "'many'")])
def test_a_bad_limit_names_option_value_and_origin(value: object, told: str) -> None:
    with pytest.raises(OptionError) as caught:
        Settings.resolve(source="command line", max_subprocesses=value)
    assert str(caught.value) == (
        f"max_subprocesses must be a whole number of at least 1, not {told} (from command line)"
    )
    with pytest.raises(OptionError, match="max_subprocesses must be"):
        Settings(max_subprocesses=value)  # type: ignore[arg-type]


def test_a_bad_limit_in_the_environment_names_the_variable() -> None:
    os.environ["INSPECT_EVAL_MAX_SUBPROCESSES"] = "none"
    with pytest.raises(OptionError, match=r"max_subprocesses .* not 'none' \(from environment variable INSPECT_EVAL"):
        Settings.resolve()


def test_as_many_child_processes_as_processors_unless_set() -> None:
    assert Settings().subprocess_limit() == Resolved(cpus(), BUILT_IN)
    os.environ["PROCTOR_EVAL_MAX_SUBPROCESSES"] = "77"
    assert Settings.resolve().subprocess_limit() == Resolved(77, "environment variable PROCTOR_EVAL_MAX_SUBPROCESSES")


def test_an_unknown_setting_is_refused_with_the_known_ones() -> None:
    with pytest.raises(OptionError, match=r"'max_subproceses'; known: .*max_subprocesses"):
        Settings.resolve(max_subproceses=2)


def test_the_backend_is_argument_then_variables_then_asyncio() -> None:
    assert async_backend() == Resolved("asyncio", BUILT_IN)
    os.environ["INSPECT_ASYNC_BACKEND"] = "trio"
    assert async_backend() == Resolved("trio", "environment variable INSPECT_ASYNC_BACKEND")
    os.environ["PROCTOR_ASYNC_BACKEND"] = "Asyncio"
    assert async_backend() == Resolved("asyncio", "environment variable PROCTOR_ASYNC_BACKEND")
    assert async_backend("trio", source="eval() argument") == Resolved("trio", "eval() argument")
    assert Settings.resolve().resolved("async_backend").value == "asyncio"
    assert Settings.resolve(async_backend="trio").resolved("async_backend") == Resolved("trio", "argument")
    os.environ["PROCTOR_ASYNC_BACKEND"] = "curio"
    with pytest.raises(OptionError, match=r"async_backend must be one of asyncio, trio, not 'curio' \(from env"):
        async_backend()


def test_numbers_and_truth_values() -> None:
    assert whole_number(" 12 ", option="x") == 12
    assert whole_number("0", option="x", minimum=0) == 0
    assert real_number("0.5", option="x") == 0.5
    assert real_number(3, option="x") == 3.0
    assert [truth(word, option="x") for word in ("true", "NO", "1", "off", True)] == [True, False, True, False, True]
    for bad in ("nan", "inf", -0.5, "x", None, True):
        with pytest.raises(OptionError, match="x must be a number of at least 0"):
            real_number(bad, option="x")
    with pytest.raises(OptionError, match="x must be true or false, not 'maybe'"):
        truth("maybe", option="x")


def test_env_files_of_all_parents_are_read_and_the_nearest_wins(tmp_path: Path) -> None:
    inner = tmp_path / "a/b"
    inner.mkdir(parents=True)
    (tmp_path / ".env").write_text("TOKEN_FAR=far\nTOKEN_BOTH=far\nTOKEN_SET=far\n")
    (inner / ".env").write_text("TOKEN_BOTH=near\n")
    os.environ["TOKEN_SET"] = "set already"
    read = load_dotenv(inner)
    assert read[:2] == [inner / ".env", tmp_path / ".env"]
    assert environ("TOKEN_FAR") == "far"
    assert environ("TOKEN_BOTH") == "near"
    assert environ("TOKEN_SET") == "set already"


def test_a_relative_log_folder_in_a_file_is_relative_to_the_file(tmp_path: Path) -> None:
    inner = tmp_path / "a"
    inner.mkdir()
    (tmp_path / ".env").write_text("INSPECT_LOG_DIR=./logs\nPROCTOR_LOG_DIR=s3://bucket/logs\nOTHER_DIR=./logs\n")
    load_dotenv(inner)
    assert environ("INSPECT_LOG_DIR") == str(tmp_path / "logs")
    assert environ("PROCTOR_LOG_DIR") == "s3://bucket/logs"
    assert environ("OTHER_DIR") == "./logs"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A=b", "b"),
        ("export A=b", "b"),
        ("  A = b  ", "b"),
        ("A=b # a comment", "b"),
        ("A=b#not a comment", "b#not a comment"),
        ("A=", ""),
        ("A=  # nothing", ""),
        ("A='b # c'", "b # c"),
        ("A='${HOME_OF_B}'", "${HOME_OF_B}"),
        ('A="b\\nc \\"d\\" \\\\n"', 'b\nc "d" \\n'),
        ('A="first\nsecond"', "first\nsecond"),
        ("A='first\nsecond' # c", "first\nsecond"),
        ("A=${HOME_OF_B}/c", "/b/c"),
        ('A="${NOT_THERE:-d}"', "d"),
        ("A=${NOT_THERE}", ""),
        ("A=one two", "one two"),
        ("A=a=b", "a=b"),
        ("\ufeff# c\r\n\r\nA=b\r\n", "b"),
    ],
)
def test_the_grammar_of_env_files(tmp_path: Path, text: str, value: str) -> None:
    assert parse_dotenv(text.lstrip("\ufeff"), environment={"HOME_OF_B": "/b"}) == {"A": value}


def test_later_lines_see_earlier_ones() -> None:
    assert parse_dotenv("A=x\nB=${A}y\n", environment={}) == {"A": "x", "B": "xy"}


def test_a_malformed_line_is_skipped_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = parse_dotenv("A=1\nthis is no assignment\nB='open\nC=3", environment={}, source="x/.env")
    assert found == {"A": "1", "C": "3"}
    assert [record.getMessage() for record in caplog.records] == [
        "x/.env, line 2 is skipped: it is not NAME=value",
        "x/.env, line 3 is skipped: it is not NAME=value",
    ]


def test_an_unreadable_file_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / ".env").write_bytes(b"A=\xff\xfe")
    with caplog.at_level(logging.WARNING):
        load_dotenv(tmp_path)
    assert "is not read" in caplog.text
