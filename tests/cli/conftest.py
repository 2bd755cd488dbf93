"""The command line, called in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import define, field, frozen

from proctor.cli.app import main


@frozen
class Outcome:
    """What a command returned and wrote."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Any:
    """An empty working folder and no variable of ours or of Inspect's."""
    import os

    for name in list(os.environ):
        if name.startswith(("PROCTOR_", "INSPECT_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cli(clean: Any, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command with these arguments."""

    def run(*arguments: str) -> Outcome:
        code = main(arguments)
        out, err = capsys.readouterr()
        return Outcome(code, out, err)

    return run


@define
class Call:
    """What `eval` was called with, where it was said to come from, and what it is to do."""

    tasks: Any = None
    options: dict[str, Any] = field(factory=dict)
    sources: set[str] = field(factory=set)
    logs: list[Any] = field(factory=list)
    error: BaseException | None = None
    calls: int = 0


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Call:
    """The engine's `eval` replaced by one that remembers its arguments."""
    from proctor.evaluation import api

    call = Call()

    def eval(tasks: Any = None, **options: Any) -> list[Any]:
        call.calls += 1
        call.tasks, call.options = tasks, {name: value.value for name, value in options.items()}
        call.sources = {value.source for value in options.values()}
        if call.error is not None:
            raise call.error
        return call.logs

    monkeypatch.setattr(api, "eval", eval)
    return call
