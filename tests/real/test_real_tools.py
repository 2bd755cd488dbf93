"""The example of a tool that runs a command, evaluated on both backends with a scripted model, and over HTTP."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from proctor import Task, eval_async
from proctor.log import EvalSample, read_eval_log
from proctor.model import ModelOutput, get_model

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "tools.py"

pytestmark = pytest.mark.real


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "some files"
    made.mkdir()
    for name in ("README.md", "no te;s.txt"):
        (made / name).touch()
    return made


async def run_example(folder: Path, logs: Path, *calls: dict[str, Any]) -> EvalSample:
    task: Task = runpy.run_path(str(EXAMPLE))["files"](dir=str(folder))
    outputs = [ModelOutput.for_tool_call("mock", "list_files", arguments) for arguments in calls]
    model = get_model("mock/lister", custom_outputs=[*outputs, "Yes, there is."])
    [log] = await eval_async(task, model, log_dir=str(logs), display="none")
    assert (log.status, log.error) == ("success", None)
    samples = read_eval_log(log.location).samples
    assert samples is not None
    return samples[0]


async def test_the_tool_lists_a_folder(folder: Path, tmp_path: Path) -> None:
    sample = await run_example(folder, tmp_path, {"dir": str(folder)})
    assert [message.role for message in sample.messages] == ["user", "assistant", "tool", "assistant"]
    assert sample.messages[2].text == "README.md\nno te;s.txt\n"
    assert sample.scores is not None
    assert sample.scores["includes"].value == "C"


async def test_what_goes_wrong_is_told_to_the_model(folder: Path, tmp_path: Path) -> None:
    sample = await run_example(
        folder, tmp_path, {"dir": str(folder / "nowhere")}, {"dir": "a\0b"}, {"directory": "x"}, {"dir": str(folder)}
    )
    missing, null, misnamed, found = (message for message in sample.messages if message.role == "tool")
    assert missing.error is not None
    assert missing.error.type == "unknown"
    assert "No such file or directory" in missing.error.message
    assert null.error is not None
    assert (null.error.type, "null byte" in null.error.message) == ("parsing", True)
    assert misnamed.error is not None
    assert "'dir' is required and missing" in misnamed.error.message
    assert found.error is None
    assert sample.error is None


@contextmanager
def server(shared: Path, *options: str) -> Iterator[str]:
    """A server that speaks chat completions, as a process; gives its address."""
    command = [sys.executable, str(shared / "tools" / "fake_openai.py"), "--port", "0", "--latency", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"127\.0\.0\.1:\d+", line)
        assert found, f"the server said {line!r}"
        yield f"http://{found[0]}/v1"
    finally:
        process.terminate()
        process.communicate(timeout=10)


async def test_a_model_behind_http_drives_the_loop(folder: Path, tmp_path: Path, shared: Path) -> None:
    """The tools go into the request, the calls come out of the answer, and the results go back."""
    task: Task = runpy.run_path(str(EXAMPLE))["files"](dir=str(folder))
    arguments = json.dumps({"dir": str(folder)})
    with server(shared, "--tool-turns", "3", "--ids", "--tool-args", arguments) as address:
        model = get_model("openai-api/local/m", base_url=address, api_key="k")
        [log] = await eval_async(task, model, log_dir=str(tmp_path), display="none")
    assert (log.status, log.error) == ("success", None)
    samples = read_eval_log(log.location).samples
    assert samples is not None
    roles = [message.role for message in samples[0].messages]
    assert roles == ["user", *["assistant", "tool"] * 3, "assistant"]
    assert {message.text for message in samples[0].messages if message.role == "tool"} == {"README.md\nno te;s.txt\n"}
