"""Text that reaches a terminal does nothing there but be read."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.display.text import cells, count, cut, cut_start, duration, fit, metric, plural, printable

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=60)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words", "plain words"),
        ("\x1b[2J\x1b[31mred", "\\x1b[2J\\x1b[31mred"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x1b]52;c;aGk=\x1b\\", "\\x1b]52;c;aGk=\\x1b\\"),
        ("one-byte CSI \x9b2J", "one-byte CSI \\x9b2J"),
        ("back\x08space, del\x7f", "back\\x08space, del\\x7f"),
        ("a\r\nb\tc", "a\\r\\nb\\tc"),
        ("abc\u202edcba", "abc\\u202edcba"),
        ("\u2066isolate\u2069", "\\u2066isolate\\u2069"),
        ("line\u2028separator", "line\\u2028separator"),
        ("half a pair \ud83d", "half a pair \\ud83d"),
        ("tag \U000e0041", "tag \\U000e0041"),
        ("é 漢字 🙂 e\u0301", "é 漢字 🙂 e\u0301"),
        ("👩\u200d🔬", "👩\u200d🔬"),
    ],
)
def test_what_a_terminal_would_act_upon_is_shown_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_line_feeds_stay_where_lines_are_wanted_and_carriage_returns_do_not() -> None:
    assert printable("a\n\tb\rc\x1b", lines=True) == "a\n    b\\rc\\x1b"


def test_a_stack_of_accents_is_cut_to_four() -> None:
    zalgo = "o" + "\u0301" * 40
    assert printable(zalgo) == "o" + "\u0301" * 4 + "\\u0301" * 36


@given(ANY_TEXT)
def test_no_text_whatsoever_leaves_a_control_character(text: str) -> None:
    shown = printable(text)
    assert not [char for char in shown if unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"}]
    shown.encode("utf-8")
    assert "\x1b" not in printable(text, lines=True)


@given(ANY_TEXT)
def test_shown_text_is_not_escaped_again(text: str) -> None:
    assert printable(printable(text)) == printable(text)


@given(ANY_TEXT, st.integers(1, 30))
def test_a_cell_of_a_table_is_as_wide_as_asked(text: str, width: int) -> None:
    shown = printable(text)
    assert cells(cut(shown, width)) <= width
    if cells(shown) <= width:
        assert cells(fit(shown, width)) == width


def test_wide_characters_take_two_columns_and_combining_ones_none() -> None:
    assert (cells("漢字"), cells("e\u0301"), cells("abc")) == (4, 1, 3)
    assert cut("漢字漢字", 6) == "漢字…"
    assert fit("ab", 4) == "ab  "
    assert (cut_start("provider/model", 6), cut_start("漢字漢字", 6), cut_start("ab", 2)) == ("…model", "…漢字", "ab")


def test_figures_are_short() -> None:
    assert [duration(s) for s in (0.4, 59.4, 60, 3725)] == ["0s", "59s", "1:00", "1:02:05"]
    assert [duration(s, exact=True) for s in (0.44, 9.94, 9.96)] == ["0.4s", "9.9s", "10s"]
    assert [count(n) for n in (0, 999, 12_345, 4_500_000, 7_000_000_000)] == ["0", "999", "12.3k", "4.5M", "7.0G"]
    assert [metric(v) for v in (0.21683, 0, 1.0, 742.0, 0.00004, float("nan"))] == [
        "0.217",
        "0.000",
        "1.000",
        "742",
        "4e-05",
        "nan",
    ]
    assert (plural(1, "sample"), plural(0, "sample")) == ("1 sample", "0 samples")
