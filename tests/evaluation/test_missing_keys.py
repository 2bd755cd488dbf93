"""A key that is missing ends its model only, with one line; alone it is said before anything begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor import Task, eval
from proctor.dataset import Sample
from proctor.errors import MissingKeyError
from proctor.scorer import includes
from proctor.solver import generate


def task() -> Task:
    return Task(name="t", dataset=[Sample(input="say it", target="Default")], solver=generate(), scorer=includes())


@pytest.mark.parametrize("name", ["openai/gpt-5", "mistral/m", "grok/grok-4", "anthropic/claude-sonnet-4"])
def test_of_several_models_one_without_a_key_ends_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, name: str
) -> None:
    variables = ("OPENAI_API_KEY", "MISTRAL_API_KEY", "XAI_API_KEY", "GROK_API_KEY", "ANTHROPIC_API_KEY")
    for variable in variables:
        monkeypatch.delenv(variable, raising=False)
    if backend not in {"asyncio", "trio"}:
        pytest.skip("eval takes a backend's own loop")
    options = {"log_dir": str(tmp_path), "display": "none", "async_backend": backend}
    refused, good = eval(task(), model=[name, "mock/any"], **options)
    assert (good.status, refused.status) == ("success", "error")
    assert refused.eval.model == name
    assert refused.error is not None
    [line] = refused.error.message.splitlines()
    assert "no API key" in line
    with pytest.raises(MissingKeyError, match="no API key"):
        eval(task(), model=name, **options)
