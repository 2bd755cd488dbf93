"""What the wrapper says on standard error is found however the stream is cut, and nothing else is lost or added."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proctor.sandbox.containers.shell import Announcements

TOKEN = "proctor-1a2b"
PIECES = st.lists(
    st.one_of(
        st.binary(max_size=6), st.sampled_from([b"\n", TOKEN.encode(), b"proctor-", b" ended ", b" ended 7", b"7"])
    ),
    max_size=8,
).map(b"".join)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    parts, begin = [], 0
    for size in sizes:
        parts.append(data[begin : begin + size])
        begin += size
    return [*parts, data[begin:]]


def unlike(data: bytes) -> bool:
    return f"{TOKEN} ended 7\n".encode() not in data + b"\n" and f"{TOKEN} began ".encode() not in data


@given(PIECES.filter(unlike), PIECES.filter(unlike), st.integers(0, 255), st.lists(st.integers(0, 9), max_size=12))
def test_every_cut_gives_the_same(preface: bytes, own: bytes, code: int, sizes: list[int]) -> None:
    whole = preface + f"{TOKEN} began 42\n".encode() + own + f"{TOKEN} ended {code}\n".encode()
    said = Announcements(TOKEN)
    got = b"".join(said.see(part) for part in cut(whole, sizes)) + said.rest()
    assert said.pid == 42
    assert said.code == code
    assert got == own


@given(PIECES.filter(unlike), st.lists(st.integers(0, 9), max_size=12))
def test_a_command_that_was_killed_loses_nothing(own: bytes, sizes: list[int]) -> None:
    said = Announcements(TOKEN)
    got = b"".join(said.see(part) for part in cut(f"{TOKEN} began 42\n".encode() + own, sizes)) + said.rest()
    assert said.code is None
    assert got == own


@given(st.binary(max_size=50), st.lists(st.integers(0, 9), max_size=6))
def test_what_never_began_is_the_engines_own_words(words: bytes, sizes: list[int]) -> None:
    said = Announcements(TOKEN)
    assert b"".join(said.see(part) for part in cut(words, sizes)) == b""
    assert said.pid is None
    assert said.rest() == words
