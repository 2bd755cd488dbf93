"""The display for log collectors: key=value lines."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest

from proctor.display import log


async def test_states_and_progress_are_logged_as_pairs(scripted: Any, caplog: pytest.LogCaptureFixture) -> None:
    scripted.plan("mock/a", samples=70)
    await scripted.play_all(log.show)
    lines = [record.getMessage() for record in caplog.records if record.name == "proctor.display"]
    assert [line.split()[2] for line in lines] == ["status=started"] * 3 + ["status=success"]
    assert lines[-1].split() == [
        "task=arithmetic", "model=mock/a", "status=success", "done=70", "total=70", "running=0", "errors=0",
        "retries=0", "tokens=7000", "log=logs/arithmetic_0.eval",
    ]  # fmt: skip


async def test_values_with_spaces_are_quoted_and_control_characters_escaped(
    scripted: Any, caplog: pytest.LogCaptureFixture
) -> None:
    view = scripted.plan("mock/a")
    async with anyio.create_task_group() as nursery:
        nursery.start_soon(log.show, view)
        scripted.end(view.tasks[0], "error", error='no "key"\n\x1b[2J')
        view.note, view.messages = "finishing now", ["one message"]
        await anyio.sleep(2)
        scripted.finish()
    text = "\n".join(record.getMessage() for record in caplog.records)
    assert 'error="no \\"key\\"\\\\n\\\\x1b[2J"' in text
    assert 'note="finishing now"' in text
    assert 'message="one message"' in text
    assert "\x1b" not in text


async def test_lines_go_to_standard_error_where_nothing_takes_them(
    scripted: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    scripted.plan("mock/a", samples=2)
    await scripted.play_all(log.show)
    out, err = capsys.readouterr()
    assert out == ""
    assert "task=arithmetic model=mock/a status=success" in err
    assert log.logger.handlers == []
    assert log.logger.level == logging.NOTSET
