"""Samples under a memory budget: what comes back is what was given, what is held stays below the budget."""

from __future__ import annotations

import os
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from proctor.dataset import Sample
from proctor.dataset.ids import Ids
from proctor.dataset.paging import Pages, sample_pages
from proctor.errors import DatasetError
from proctor.model import ChatMessageUser, ContentText
from proctor.runtime.spill import PIECE, Spill


class Reading:
    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reading) and other.number == self.number

    __hash__ = None  # type: ignore[assignment]


class Longer(Sample):
    """A class of the user's own."""


def some() -> list[Sample]:
    message = ChatMessageUser(content=[ContentText(text="look")], id="m")
    return [
        Sample("plain", target="t"),
        Sample([message], target=["a", "b"], choices=["x", "y"], id="id ü \ud800", sandbox=("docker", {"a": 1})),
        Sample("odd", metadata={"when": date(2024, 1, 2), "of": (1, {2, 3}), 4: None, "own": Reading(5), "nan": 1e400}),
        Sample("files", files={"a.txt": "text"}, setup="ls", description="d", id=7),
        Longer("derived", id=True),
    ]


@pytest.mark.parametrize("budget", [None, 1, 500, 10**9])
def test_what_is_read_back_is_what_was_appended(budget: int | None) -> None:
    pages = sample_pages(budget)
    given = some() * 3
    for sample in given:
        pages.append(sample)
    found = [pages[row] for row in range(len(given))]
    assert found == given
    assert [type(sample) for sample in found] == [type(sample) for sample in given]
    assert found[2].metadata is not given[2].metadata


def test_the_budget_bounds_what_is_held_after_every_row() -> None:
    pages = sample_pages(10_000)
    for number in range(1_000):
        pages.append(Sample("x" * 200, id=number))
        assert pages.held <= 10_000
    assert pages.held + pages.paged > 200_000
    assert [pages[row].id for row in (999, 0, 500)] == [999, 0, 500]


def test_once_rows_are_on_disk_no_more_is_held_than_is_written_at_once() -> None:
    pages = sample_pages(3 * PIECE)
    most = 0
    for _ in range(80):
        pages.append(Sample("x" * 100_000))
        most = max(most, pages.held) if pages.paged else most
    assert 0 < most <= PIECE


def test_nothing_goes_to_disk_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", None)
    pages = sample_pages(1_000_000)
    for sample in some() * 100:
        pages.append(sample)
    assert pages.paged == 0


def test_a_row_longer_than_the_budget_goes_to_disk_at_once() -> None:
    pages = sample_pages(1_000)
    pages.append(Sample("x" * 100_000))
    assert pages.held == 0
    assert len(pages[0].input) == 100_000


def test_what_cannot_be_packed_stays_as_it_is() -> None:
    pages = sample_pages(1)
    given = Sample("x", metadata={"call": lambda: 5})
    pages.append(given)
    pages.append(Sample("y"))
    assert pages[0] is given
    assert pages[1].input == "y"


def test_the_file_has_no_name_and_goes_with_its_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = descriptors()
    pages: Pages[Sample] | None = sample_pages(1)
    assert pages is not None
    pages.append(Sample("x"))
    assert list(tmp_path.iterdir()) == []
    assert len(descriptors()) == len(before) + 1
    pages = None
    assert descriptors() == before
    other = sample_pages(1)
    other.append(Sample("x"))
    other.close()
    other.close()
    assert descriptors() == before


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_a_full_disk_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    pages = sample_pages(100)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(DatasetError, match="No space left on device; set TMPDIR"):
        pages.append(Sample("x" * 1_000))


def test_a_file_that_was_cut_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = sample_pages(1)
    pages.append(Sample("x" * 1_000))
    monkeypatch.setattr(os, "pread", lambda *_: b"")
    with pytest.raises(DatasetError, match=r"cannot be read back from a temporary file: .* bytes of a"):
        pages[0]


@pytest.mark.parametrize("budget", [None, 1, 7, 100])
def test_bytes_are_read_back_from_wherever_they_are(budget: int | None) -> None:
    spill = Spill(budget)
    whole = b""
    for number in range(60):
        piece = bytes([number]) * (number % 9)
        spill.append(piece)
        whole += piece
        assert budget is None or spill.held <= budget
    assert len(spill) == len(whole)
    for start in range(len(whole)):
        for size in (0, 1, 5, 50, 1000):
            assert spill.read(start, size) == whole[start : start + size]
    assert b"".join(spill.pieces()) == whole
    assert b"".join(spill.pieces(3, 100)) == whole[3:100]


# Ids


def added(*given: Any) -> tuple[Ids, list[int | None]]:
    ids = Ids()
    return ids, [ids.add(id) for id in given]


@pytest.mark.parametrize(
    "given",
    [
        range(1, 5_000),
        range(5_000),
        [*range(1, 3_000), "text", *range(3_001, 6_000)],
        [f"row-{n}" for n in range(5_000)],
        [n * n for n in range(2_000)],
        [-1, 0, 1, 2, "03", "", "ü\ud800", 2**80],
    ],
    ids=["from 1", "from 0", "one text", "texts", "squares", "odd"],
)
def test_ids_come_back_in_order_with_their_types(given: Any) -> None:
    ids, found = added(*given)
    assert found == [None] * len(given)
    assert ids.of(range(len(given))) == list(given)
    assert [type(id) for id in ids.of(range(len(given)))] == [type(id) for id in given]
    assert ids.of([len(given) - 1, 0]) == [given[-1], given[0]]


@pytest.mark.parametrize(
    ("given", "again", "row"),
    [
        (range(1, 3_000), 7, 6),
        (range(1, 3_000), "7", 6),
        (["a", "5", "b"], 5, 1),
        ([f"row-{n}" for n in range(4_000)], "row-3999", 3_999),
        ([n * n for n in range(4_000)], 3_999**2, 3_999),
    ],
)
def test_an_id_that_comes_twice_is_found_with_its_row(given: Any, again: Any, row: int) -> None:
    ids, _ = added(*given)
    assert ids.add(again) == row
    assert len(ids) == len(given)
    assert ids.add("new") is None


@pytest.mark.parametrize("given", [range(5), [f"row-{n}" for n in range(2_000)], []])
def test_ids_are_there_when_no_more_come(given: Any) -> None:
    ids, _ = added(*given)
    ids.close()
    assert ids.of(range(len(ids))) == list(given)


def test_ids_that_number_themselves_take_no_room() -> None:
    import sys

    ids, _ = added(*range(1, 100_000))
    assert sum(sys.getsizeof(getattr(ids, name)) for name in ("_text", "_ends", "_slots")) < 500
    assert ids[50_000] == 50_001
