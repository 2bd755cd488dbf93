"""Small pure parts: the end of a stream, text from bytes, results."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.errors import ProcessTimeout, ProctorError
from proctor.process import ExecResult
from proctor.process.result import Tail, as_text, decode


def tail_of(limit: int | None, *parts: bytes) -> Tail:
    tail = Tail(limit)
    for part in parts:
        tail.add(part)
    return tail


@pytest.mark.parametrize("chunk", [1, 7, 4096, 65_536])
@pytest.mark.parametrize(("size", "cut"), [(9_999, False), (10_000, False), (10_001, True), (0, False)])
def test_a_tail_keeps_the_last_bytes_and_says_when_that_is_not_all(size: int, cut: bool, chunk: int) -> None:
    data = bytes(n % 251 for n in range(size))
    tail = tail_of(10_000, *(data[at : at + chunk] for at in range(0, size, chunk)))
    assert tail.value() == data[-10_000:]
    assert (tail.total, tail.cut) == (size, cut)


def test_a_tail_without_limit_keeps_all() -> None:
    tail = tail_of(None, b"a" * 100_000, b"b")
    assert (len(tail.value()), tail.total, tail.cut) == (100_001, 100_001, False)


@pytest.mark.parametrize("character", ["é", "€", "😀"])
@pytest.mark.parametrize("offset", range(4))
def test_a_limit_never_splits_a_character(character: str, offset: int) -> None:
    data = ("x" * offset + character * 8_000).encode()
    tail = tail_of(10_000, data)
    text = decode(tail.value(), cut=tail.cut)
    assert set(text) == {character}
    assert 10_000 - len(character.encode()) < len(text.encode()) <= 10_000


def test_what_was_not_cut_is_decoded_as_it_is() -> None:
    assert decode(b"\x80abc") == "�abc"
    assert decode(b"\x80\x80\x80\x80abc", cut=True) == "�abc"
    assert decode(b"abc\xff", cut=True) == "abc�"
    assert decode(b"\xa9", cut=True) == ""


def test_a_result_as_text_keeps_what_else_it_says() -> None:
    result = as_text(ExecResult(False, 3, b"\xa9x", b"\xa9x", {"stdout": 12}))
    assert result == ExecResult(False, 3, "x", "�x", {"stdout": 12})


def test_a_result_is_made_as_those_of_inspect() -> None:
    positional: Any = ExecResult(True, 0, "out", "err")
    named: Any = ExecResult(success=True, returncode=0, stdout="out", stderr="err")
    assert positional == named
    assert not positional.truncated
    positional.stdout = "changed"
    assert positional.stdout == "changed"


def test_a_timeout_is_a_timeout_error_with_the_output_so_far() -> None:
    error = ProcessTimeout("late", stdout="a", stderr=b"", truncated={"stdout": 5})
    assert isinstance(error, TimeoutError)
    assert isinstance(error, ProctorError)
    assert (str(error), error.stdout, error.stderr, error.truncated) == ("late", "a", b"", {"stdout": 5})
