"""Writing to a terminal that stands still holds nobody but its own thread."""

from __future__ import annotations

import io
import os
import threading

import pytest

from proctor.display import terminal as module
from proctor.display.terminal import Descriptor, Terminal


class Stalled(io.StringIO):
    """A stream whose writes wait until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def write(self, text: str) -> int:
        self.go.wait(30)
        return super().write(text)


def test_lines_come_out_in_order() -> None:
    stream = io.StringIO()
    terminal = Terminal(stream)
    for number in range(500):
        terminal.line(str(number))
    assert terminal.close()
    assert stream.getvalue() == "".join(f"{number}\n" for number in range(500))


def test_nothing_waits_for_a_terminal_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAST_WORDS", 0.01)
    stream = Stalled()
    terminal = Terminal(stream)
    terminal.line("one")
    terminal.line("two")
    assert terminal.close() is False
    stream.go.set()
    assert terminal.close() is True
    assert stream.getvalue() == "one\ntwo\n"


def test_a_drawing_that_has_not_begun_is_replaced_by_the_next() -> None:
    stream = Stalled()
    terminal = Terminal(stream)
    drawn: list[int] = []
    terminal.line("first")
    for number in range(100):
        terminal.draw(lambda number=number: drawn.append(number))  # type: ignore[misc]
    stream.go.set()
    assert terminal.close()
    assert drawn[-1] == 99
    assert len(drawn) <= 2


def test_a_terminal_that_was_never_written_to_has_no_thread() -> None:
    before = threading.active_count()
    terminal = Terminal(io.StringIO())
    assert threading.active_count() == before
    assert terminal.close()


def test_after_a_failure_nothing_more_is_written() -> None:
    class Broken(io.StringIO):
        tries = 0

        def write(self, text: str) -> int:
            self.tries += 1
            raise OSError("the terminal is gone")

    stream = Broken()
    terminal = Terminal(stream)
    terminal.line("one")
    terminal.draw(lambda: terminal.file.write("two"))
    assert terminal.close()
    terminal = Terminal(stream)
    terminal.line("three")
    assert terminal.close()
    assert stream.tries == 2
    assert isinstance(terminal.failure, OSError)


def test_what_the_encoding_cannot_say_is_escaped() -> None:
    read, write = os.pipe()
    with open(write, "w", encoding="ascii") as stream:
        stream.write("before ")
        Descriptor(stream).write("naïve …")
    with open(read, "rb") as got:
        assert got.read() == b"before na\\xefve \\u2026"
