"""Datasets that are read only as far as needed, and Hugging Face's."""

from __future__ import annotations

import gzip
import json
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from proctor.dataset import FieldSpec, MemoryDataset, Sample, csv_dataset, hf_dataset, json_dataset, streamed
from proctor.dataset.documents import SHORT
from proctor.dataset.iterable import IterableDataset
from proctor.dataset.streamed import StreamedDataset
from proctor.errors import DatasetError, OptionError, UsageError


@pytest.fixture
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed, "SMALL", 0)


def rows(count: int = 20) -> list[dict[str, Any]]:
    letters = ["A", "B", "C"]
    return [{"input": f"question {n}", "target": letters[n % 3], "choices": ["p", "q", "r"]} for n in range(count)]


def write(path: Path, found: list[dict[str, Any]]) -> str:
    text = "\n".join(map(json.dumps, found)) if path.suffix == ".jsonl" else json.dumps(found)
    if path.suffix == ".csv":
        text = "input,target\n" + "\n".join(f"{row['input']},{row['target']}" for row in found)
    path.write_text(text)
    return str(path)


def test_a_small_file_is_in_memory_and_a_large_one_is_not(tmp_path: Path) -> None:
    small = json_dataset(write(tmp_path / "small.jsonl", rows(500)))
    large = json_dataset(write(tmp_path / "large.jsonl", rows(20_000)))
    assert isinstance(small, MemoryDataset)
    assert isinstance(large, StreamedDataset)
    assert not large.in_memory
    assert len(large) == 20_000
    assert large.in_memory


ARGUMENTS = [
    {},
    {"limit": 7},
    {"shuffle": True, "seed": 5},
    {"shuffle": 5, "limit": 7},
    {"shuffle_choices": 3},
    {"shuffle": 9, "shuffle_choices": 3, "limit": 15},
    {"auto_id": True, "shuffle": 2},
]


@pytest.mark.parametrize("budget", [None, 1, 1_000])
@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_streamed_samples_are_those_of_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], budget: int | None
) -> None:
    path = write(tmp_path / "d.jsonl", rows())
    expected = json_dataset(path, **arguments)
    monkeypatch.setattr(streamed, "SMALL", 0)
    found = json_dataset(path, **arguments)
    assert isinstance(found, StreamedDataset)
    assert list(found.stream(budget)) == list(expected)
    assert list(found.stream(budget)) == list(expected)
    assert (found.name, found.location, found.shuffled) == (expected.name, expected.location, expected.shuffled)
    assert list(found) == list(expected)


def test_a_drawn_seed_is_drawn_once(tmp_path: Path, nothing_is_small: None) -> None:
    found = json_dataset(write(tmp_path / "d.jsonl", rows()), shuffle=True, shuffle_choices=True)
    assert isinstance(found, StreamedDataset)
    assert list(found.stream(None)) == list(found.stream(10)) == list(found)


def test_a_list_can_be_made_of_a_streamed_dataset_and_changed(tmp_path: Path, nothing_is_small: None) -> None:
    found = json_dataset(write(tmp_path / "d.jsonl", rows()))
    expected = MemoryDataset([Sample(**row) for row in rows()])
    assert found[3] == expected[3]
    assert list(found[2:5]) == list(expected[2:5])
    assert len(found.filter(lambda sample: sample.target == "A")) == 7
    for dataset in (found, expected):
        dataset.shuffle(4)
        dataset.shuffle_choices(4)
        dataset.sort(key=lambda sample: sample.target)
    assert list(found) == list(expected)
    assert found.shuffled


def test_closing_a_stream_closes_its_file(tmp_path: Path, nothing_is_small: None) -> None:
    found = json_dataset(write(tmp_path / "d.jsonl", rows()), shuffle=1)
    before = os.listdir("/proc/self/fd")
    assert isinstance(found, StreamedDataset)
    for budget in (None, 1):
        samples = found.stream(budget)
        next(samples)
        samples.close()  # type: ignore[attr-defined]
        assert os.listdir("/proc/self/fd") == before


def test_a_mistake_beyond_what_was_looked_at_is_told_when_it_is_reached(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text("\n".join(map(json.dumps, rows(20_000))) + "\n{broken\n")
    found = json_dataset(str(path))
    assert isinstance(found, StreamedDataset)
    stream = found.stream(None)
    assert sum(1 for _, _ in zip(range(20_000), stream, strict=False)) == 20_000
    with pytest.raises(DatasetError, match="row 20001"):
        next(stream)


def test_a_pipe_is_read_once(tmp_path: Path, nothing_is_small: None) -> None:
    import threading

    path = tmp_path / "pipe.jsonl"
    os.mkfifo(path)
    text = "\n".join(map(json.dumps, rows(300)))
    writer = threading.Thread(target=path.write_text, args=(text,))
    writer.start()
    found = json_dataset(str(path))
    writer.join()
    assert isinstance(found, MemoryDataset)
    assert len(found) == 300


# JSON documents that are read item by item.


def long_document(
    *, indent: int | None = None, gz: bool = False, text: str = 'text ü {[\\"'
) -> tuple[list[Any], bytes]:
    found = [{"input": f"{n} {text}", "target": "x" * 100, "n": [n, {"a": None}], "f": 1.5} for n in range(8_000)]
    data = json.dumps(found, indent=indent, ensure_ascii=False).encode()
    assert len(data) > SHORT
    return found, gzip.compress(data) if gz else data


@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_long_document_is_read_item_by_item(tmp_path: Path, indent: int | None, gz: bool) -> None:
    found, data = long_document(indent=indent, gz=gz)
    path = tmp_path / ("d.json.gz" if gz else "d.json")
    path.write_bytes(data)
    samples = json_dataset(str(path), FieldSpec(metadata=["n", "f"]))
    assert isinstance(samples, StreamedDataset)
    assert [(s.input, s.metadata) for s in samples.stream(None)] == [
        (row["input"], {"n": row["n"], "f": row["f"]}) for row in found
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
def test_a_long_document_in_an_encoding(tmp_path: Path, encoding: str) -> None:
    found, data = long_document()
    path = tmp_path / "d.json"
    path.write_bytes(data.decode().encode(encoding))
    options = {} if encoding == "utf-8-sig" else {"encoding": encoding}
    samples = json_dataset(str(path), **options)
    assert [s.input for s in samples] == [row["input"] for row in found]


def test_the_place_of_a_mistake_in_a_long_document(tmp_path: Path) -> None:
    _, data = long_document(indent=1)
    lines = data.decode().split("\n")
    wrong = 60_000
    assert lines[wrong].startswith("   ")
    lines[wrong] = '   "a" "b"'
    path = tmp_path / "d.json"
    path.write_text("\n".join(lines))
    with pytest.raises(json.JSONDecodeError) as expected:
        json.loads(path.read_text())
    with pytest.raises(DatasetError) as found:
        len(json_dataset(str(path)))
    where = f"line {expected.value.lineno}, column {expected.value.colno}"
    assert str(found.value) == f"{path}, {where}: this is not valid JSON: {expected.value.msg}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-1], "Expecting ',' delimiter"),
        (lambda data: data[:-40], "this is not valid JSON"),
        (lambda data: data + b" x", "Extra data"),
        (lambda data: data[:-1] + b", 5]", "row 8001: a row must be a JSON object"),
        (lambda data: data[:-1] + b", \xff]", "the text is not UTF-8 (byte "),
        (lambda data: data[:-1] + b",]", "this is not valid JSON"),
        (lambda data: b"5" * len(data), "this is not valid JSON"),
        (lambda data: b'"' + b"x" * len(data), "Unterminated string"),
        (lambda data: b"x" * len(data), "Expecting value"),
    ],
)
def test_what_is_wrong_with_a_long_document(tmp_path: Path, change: Any, message: str) -> None:
    _, data = long_document(text="plain")
    path = tmp_path / "d.json"
    path.write_bytes(change(data))
    with pytest.raises(DatasetError) as caught:
        len(json_dataset(str(path)))
    assert message in str(caught.value)


def test_options_of_json_hold_for_long_documents(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    _, data = long_document()
    path.write_bytes(data)
    found = json_dataset(str(path), FieldSpec(metadata=["f"]), parse_float=str)
    assert found[0].metadata == {"f": "1.5"}


def test_long_json_lines_under_another_name(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    path.write_text("\n".join(map(json.dumps, rows(30_000))))
    assert path.stat().st_size > SHORT
    found = json_dataset(str(path))
    assert isinstance(found, StreamedDataset)
    assert [s.input for s in found] == [row["input"] for row in rows(30_000)]


def test_one_long_object_is_one_row(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    path.write_text(json.dumps({"input": "x" * SHORT, "target": "y"}, indent=1))
    assert [s.target for s in json_dataset(str(path))] == ["y"]


def test_csv_is_streamed(tmp_path: Path, nothing_is_small: None) -> None:
    found = csv_dataset(write(tmp_path / "d.csv", rows()), limit=5)
    assert isinstance(found, StreamedDataset)
    assert [s.input for s in found.stream(1)] == [row["input"] for row in rows()][:5]


# Iterables


def test_an_iterable_becomes_a_list_when_it_is_used_as_one() -> None:
    dataset = IterableDataset(Sample(f"q{n}") for n in range(5))
    assert len(dataset) == 5
    assert [s.input for s in dataset] == ["q0", "q1", "q2", "q3", "q4"]
    assert [s.id for s in dataset] == [1, 2, 3, 4, 5]


def test_an_asynchronous_iterable_has_no_length_before_a_run() -> None:
    async def samples() -> Any:
        yield Sample("x")

    with pytest.raises(UsageError, match="read by a run only"):
        len(IterableDataset(samples()))


# Hugging Face


class Hub:
    """A stand-in for the package: rows that can be shuffled, as its own shuffle depends on length and seed only."""

    def __init__(self, found: list[dict[str, Any]]) -> None:
        self.rows = found

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __getitem__(self, column: str) -> list[Any]:
        return [row[column] for row in self.rows]

    def shuffle(self, seed: int) -> Hub:
        order = list(range(len(self.rows)))
        Random(seed).shuffle(order)
        return Hub([self.rows[row] for row in order])

    @staticmethod
    def from_dict(columns: dict[str, list[Any]]) -> Hub:
        [(name, values)] = columns.items()
        return Hub([{name: value} for value in values])


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    asked: list[tuple[Any, Any]] = []

    def load_dataset(path: str, **options: Any) -> Hub:
        asked.append((path, options))
        if path == "gone":
            raise FileNotFoundError("no such dataset")
        return Hub(rows())

    module: Any = types.ModuleType("datasets")
    module.load_dataset, module.Dataset = load_dataset, Hub
    monkeypatch.setitem(sys.modules, "datasets", module)
    return asked


def test_without_its_package_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match=r"pip install 'proctor\[hf\]'"):
        hf_dataset("openai/gsm8k", "test")


def test_a_dataset_of_the_hub(hub: list[tuple[Any, Any]]) -> None:
    found = hf_dataset("openai/gsm8k", "test", name="main", revision="abc", limit=3, num_proc=2)
    assert [s.input for s in found] == ["question 0", "question 1", "question 2"]
    assert (found.name, found.location, found.shuffled) == ("openai/gsm8k", "openai/gsm8k", False)
    assert hub == [
        ("openai/gsm8k", {"name": "main", "data_dir": None, "split": "test", "revision": "abc", "num_proc": 2})
    ]


def test_trust_and_caching_are_passed_on(hub: list[tuple[Any, Any]]) -> None:
    hf_dataset("a", "test", trust=True, cached=False)
    assert hub[0][1]["trust_remote_code"] is True
    assert hub[0][1]["download_mode"] == "force_redownload"


def two(record: dict[str, Any]) -> list[Sample]:
    return [Sample(record["input"]), Sample(record["input"] + "!")] if record["target"] == "A" else [Sample("other")]


@pytest.mark.parametrize("budget", [None, 1])
@pytest.mark.parametrize("fields", [None, two])
def test_ids_are_those_of_the_order_before_shuffling(hub: Any, fields: Any, budget: int | None) -> None:
    plain = list(hf_dataset("a", "test", sample_fields=fields, auto_id=True))
    shuffled = hf_dataset("a", "test", sample_fields=fields, auto_id=True, shuffle=True, seed=3)
    assert shuffled.shuffled
    assert [s.id for s in plain] == list(range(1, len(plain) + 1))
    assert [s.id for s in shuffled] != [s.id for s in plain]
    assert sorted(shuffled, key=lambda s: int(s.id or 0)) == plain


def test_the_order_is_the_packages_own(hub: Any) -> None:
    expected = [row["input"] for row in Hub(rows()).shuffle(3)]
    assert [s.input for s in hf_dataset("a", "test", shuffle=3, limit=4)] == expected[:4]


def test_a_dataset_of_the_hub_is_streamed(hub: Any, nothing_is_small: None) -> None:
    found = hf_dataset("a", "test", shuffle=3)
    assert isinstance(found, StreamedDataset)
    assert found.shuffled
    assert [s.input for s in found.stream(1)] == [row["input"] for row in Hub(rows()).shuffle(3)]


def test_what_fails_in_the_package_is_told(hub: Any) -> None:
    with pytest.raises(DatasetError, match=r"gone: datasets\.load_dataset raised FileNotFoundError: no such dataset"):
        hf_dataset("gone", "test")
    with pytest.raises(DatasetError, match="row 1, column 'wrong'"):
        hf_dataset("a", "test", sample_fields=FieldSpec(input="wrong"))
    with pytest.raises(OptionError):
        hf_dataset("a", "test", limit=0)
