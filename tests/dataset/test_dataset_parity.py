"""Dataset readers against `inspect_ai`'s, on generated files: a ported task must see the same samples.

Where ours differ on purpose, the test says so.
"""

from __future__ import annotations

import csv
import gzip
import json
import random
import warnings
from pathlib import Path
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import inspect_ai.dataset as theirs

import proctor.dataset as ours

FIELDS = ("input", "choices", "target", "id", "metadata", "files", "setup")


def shape(sample: Any) -> dict[str, Any]:
    """A sample as comparable values; an empty cell is None for us and "" for them, and means the same."""
    made = {name: getattr(sample, name) or None for name in FIELDS}
    made["target"] = sample.target
    if not isinstance(sample.input, str):
        made["input"] = [
            (message.role, message.text, message.source, getattr(message, "tool_call_id", None))
            for message in sample.input
        ]
    made["sandbox"] = (
        None if not sample.sandbox or not sample.sandbox.type else (sample.sandbox.type, sample.sandbox.config)
    )
    return made


def read(of: Any, reader: str, path: Path, **options: Any) -> Any:
    try:
        return getattr(of, reader)(str(path), **options)
    except Exception as error:
        return error


def assert_same(name: str, path: Path, mine: dict[str, Any] | None = None, their: dict[str, Any] | None = None) -> int:
    my_dataset = read(ours, name, path, **(mine or {}))
    their_dataset = read(theirs, name, path, **(mine if their is None else their) or {})
    if isinstance(my_dataset, Exception) or isinstance(their_dataset, Exception):
        assert isinstance(my_dataset, Exception), (path.read_bytes(), their_dataset)
        assert isinstance(their_dataset, Exception), (path.read_bytes(), my_dataset)
        return 0
    assert [shape(sample) for sample in my_dataset] == [shape(sample) for sample in their_dataset]
    assert (my_dataset.name, my_dataset.location, my_dataset.shuffled) == (
        their_dataset.name,
        their_dataset.location,
        their_dataset.shuffled,
    )
    return len(my_dataset)


VALUES: dict[str, list[Any]] = {
    "input": [
        "What is 2+2?", "Zeilen\nmit Umlaut ü", "", None, 5,
        [{"role": "user", "content": "hi"}], [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        [{"role": "assistant", "content": "a"}, {"role": "tool", "content": "t", "tool_call_id": "1"}],
        [{"role": "nobody", "content": "x"}], [{"role": "user"}], [{"content": "x"}],
        [{"role": "user", "content": [{"type": "text", "text": "part"}]}],
    ],
    "target": ["4", 4, 4.5, True, None, ["a", "b"], [1, 2], "", "A"],
    "choices": [["a", "b"], "a, b,", "a b  c", None, [1, " ", 2], 7, ""],
    "id": [1, "x", None, 7, "007"],
    "metadata": [{"k": 1}, None, '{"k": [2]}', {}, "not json", 3],
    "files": [{"a.txt": "content"}, '{"b": "c"}', None, {"a": 1}, [1]],
    "setup": ["echo", None, 3],
    "sandbox": ["docker", ["docker", "compose.yaml"], '["local", "x"]', None, ["one"], 5],
}  # fmt: skip


def records(seed: int, count: int, *, clean: bool) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    made = []
    for _ in range(count):
        record: dict[str, Any] = {"input": chance.choice(VALUES["input"][:2] if clean else VALUES["input"])}
        for name, values in VALUES.items():
            if name != "input" and chance.random() < 0.4:
                record[name] = chance.choice(
                    values[:3] if clean and name != "metadata" else values[:1] if clean else values
                )
        made.append(record)
    return made


def write_lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("seed", range(300))
def test_a_row_is_read_or_refused_as_theirs(tmp_path: Path, seed: int) -> None:
    (record,) = records(seed, 1, clean=False)
    assert_same("json_dataset", write_lines(tmp_path / "d.jsonl", [record]))


@pytest.mark.parametrize("column", VALUES)
def test_every_value_of_a_column_is_read_or_refused_as_theirs(tmp_path: Path, column: str) -> None:
    for value in VALUES[column]:
        assert_same("json_dataset", write_lines(tmp_path / "d.jsonl", [{"input": "question", column: value}]))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"limit": 7},
        {"limit": 100},
        {"shuffle": True, "seed": 42},
        {"shuffle": 3},
        {"shuffle": 0, "limit": 5},
        {"auto_id": True},
        {"auto_id": True, "shuffle": 5},
        {"name": "own"},
    ],
)
@pytest.mark.parametrize("ending", ["jsonl", "json"])
def test_files_are_read_as_theirs(tmp_path: Path, ending: str, options: dict[str, Any]) -> None:
    rows = records(1, 40, clean=True)
    if "shuffle" in options:
        # Theirs leaves shuffled samples without ids, and numbers them in the order they came out of the shuffle.
        rows = [{**row, "id": n} for n, row in enumerate(rows)]
    path = tmp_path / f"data.{ending}"
    if ending == "jsonl":
        write_lines(path, rows)
    else:
        path.write_text(json.dumps(rows), encoding="utf-8")
    assert assert_same("json_dataset", path, options) > 0
    assert assert_same("file_dataset", path, options) > 0


@pytest.mark.parametrize("seed", [0, 1, 17])
def test_choices_are_shuffled_as_theirs(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    rows = [
        {
            "input": "q",
            "id": n,
            "choices": [f"c{i}" for i in range(chance.choice([2, 4, 30]))],
            "target": chance.choice(["A", "B", ["A", "B"]]),
        }
        for n in range(30)
    ]
    path = write_lines(tmp_path / "d.jsonl", [*rows, {"input": "no choices", "id": "x", "target": "T"}])
    assert assert_same("json_dataset", path, {"shuffle_choices": seed}) == 31
    assert assert_same("json_dataset", path, {"shuffle": 1, "shuffle_choices": seed, "limit": 9}) == 9


SPECS: list[dict[str, Any]] = [
    {"input": "question", "target": "answer"},
    {"input": "question", "metadata": ["extra", "absent"]},
    {
        "input": "question",
        "target": "answer",
        "choices": "options",
        "id": "key",
        "sandbox": "box",
        "files": "f",
        "setup": "s",
    },
]


@pytest.mark.parametrize("spec", SPECS)
def test_columns_by_name_are_read_as_theirs(tmp_path: Path, spec: dict[str, Any]) -> None:
    rows = [
        {
            "question": f"q{n}",
            "answer": n,
            "options": "x,y",
            "key": f"k{n}",
            "extra": {"deep": n},
            "box": "local",
            "f": {"a": "b"},
            "s": "echo",
        }
        for n in range(5)
    ]
    path = write_lines(tmp_path / "d.jsonl", rows)
    mine, their = {"sample_fields": ours.FieldSpec(**spec)}, {"sample_fields": theirs.FieldSpec(**spec)}
    assert assert_same("json_dataset", path, mine, their) == 5


def test_metadata_is_read_into_a_model_as_theirs(tmp_path: Path) -> None:
    from pydantic import BaseModel

    class Facts(BaseModel, frozen=True):
        level: int
        tag: str = "none"

    for row in (
        {"input": "q", "level": "3", "other": 1},
        {"input": "q", "metadata": {"level": 2, "tag": "x", "no": 0}},
        {"input": "q"},
    ):
        path = write_lines(tmp_path / "d.jsonl", [row])
        mine, their = ours.FieldSpec(metadata=Facts), theirs.FieldSpec(metadata=Facts)
        assert_same("json_dataset", path, {"sample_fields": mine}, {"sample_fields": their})


def test_a_function_makes_samples_as_theirs(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "d.jsonl", [{"q": f"q{n}", "a": str(n)} for n in range(6)])

    def maker(of: Any) -> Any:
        def make(record: dict[str, Any]) -> Any:
            sample = of.Sample(input=record["q"], target=record["a"])
            return [sample, of.Sample(input="again", target="")] if int(record["a"]) % 2 else sample

        return make

    for options in ({}, {"auto_id": True}, {"limit": 4}):
        mine, their = {"sample_fields": maker(ours), **options}, {"sample_fields": maker(theirs), **options}
        assert assert_same("json_dataset", path, mine, their) > 3


def write_csv(path: Path, rows: list[list[str]], **options: Any) -> Path:
    with path.open("w", newline="", encoding=options.pop("encoding", "utf-8")) as file:
        csv.writer(file, **options).writerows(rows)
    return path


TABLE = [
    ["input", "target", "choices", "id", "metadata", "sandbox", "files", "setup"],
    ["question, with comma", "4", "a,b", "1", '{"k": 1}', "docker", '{"a": "b"}', "echo"],
    ['with "quotes"', "", "", "2", "{}", '["docker", "c.yaml"]', "{}", "x"],
    ["two\nlines", "ü", "x y z", "three", "[]", "local", '{"p": ""}', "y"],
]


def test_csv_is_read_as_theirs(tmp_path: Path) -> None:
    table = [[*row[:4], row[4].replace("[]", "{}"), *row[5:]] for row in TABLE]
    assert assert_same("csv_dataset", write_csv(tmp_path / "a.csv", table)) == 3
    assert assert_same("csv_dataset", write_csv(tmp_path / "b.csv", table, dialect="unix")) == 3
    assert assert_same("csv_dataset", write_csv(tmp_path / "bom.csv", table, encoding="utf-8-sig")) == 3
    assert assert_same("file_dataset", write_csv(tmp_path / "c.tsv", table, delimiter="\t")) == 3
    assert assert_same("csv_dataset", write_csv(tmp_path / "d.csv", table, delimiter=";"), {"delimiter": ";"}) == 3
    assert (
        assert_same("csv_dataset", write_csv(tmp_path / "e.csv", table, dialect="excel-tab"), {"dialect": "excel-tab"})
        == 3
    )
    assert assert_same("csv_dataset", write_csv(tmp_path / "f.csv", table[1:]), {"fieldnames": table[0]}) == 3
    assert (
        assert_same("csv_dataset", write_csv(tmp_path / "g.csv", table, encoding="latin-1"), {"encoding": "latin-1"})
        == 3
    )
    assert assert_same("csv_dataset", write_csv(tmp_path / "h.csv", table), {"limit": 2, "shuffle": 8}) == 2


@pytest.mark.parametrize(
    "text",
    [
        "input,target\na,b\n\n\nc,d\n",
        "input,target\na,b\n,\nc,d\n",
        "\n\ninput,target\na,b\n"[2:],
        "input,target\na\n",
        "input,target\na,b,c\n",
        'input,target\n"a\nb",c\nd,e\n',
        'input,target\n"never closed,c\nd,e\n',
        "question,target\na,b\n",
        "input,target\na,b",
        "input,target\r\na,b\r\nc,d\r\n",
        "input,metadata\na,not json\n",
        "input,id,id\na,1,2\n",
        "input , target\na,b\n",
    ],
)
def test_odd_csv_is_read_or_refused_as_theirs(tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.csv"
    path.write_bytes(text.encode())
    assert_same("csv_dataset", path)


@pytest.mark.parametrize(
    "text",
    [
        '{"input": "a"}',
        '{"input": "a", "input": "b"}\n',
        '{"input": "a", "target": NaN}\n',
        '{"input": "a", "target": 1e400}\n',
        '{"input": "a", "target": 123456789012345678901234567890}\n',
        '{"input": "\\ud83d\\ude00 \\u00e9", "target": -0.0}\n',
        '{"input": "a"}\n[1]\n',
        '{"input": "a"}\n"text"\n',
        '{"input": "a"}\n{"input": \n',
        '{"input": "a"} {"input": "b"}\n',
        '{"input": "a",}\n',
        '\ufeff{"input": "a"}\n',
        "null\n",
    ],
)
def test_odd_json_lines_are_read_or_refused_as_theirs(tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_bytes(text.encode())
    assert_same("json_dataset", path)


@pytest.mark.parametrize("text", ['{"input": "a"}', "[1]", '"text"', "3", "[", '[{"input": "a"},]', '[{"input": NaN}]'])
def test_odd_json_is_read_or_refused_as_theirs(tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.json"
    path.write_bytes(text.encode())
    assert_same("json_dataset", path)


def test_paths_beside_the_file_become_absolute_as_theirs(tmp_path: Path) -> None:
    for name in ("compose.yaml", "setup.sh", "input.txt", "image.png"):
        (tmp_path / name).write_text("here")
    image = [
        {"role": "user", "content": [{"type": "image", "image": "image.png"}, {"type": "text", "text": "image.png"}]}
    ]
    rows = [
        {
            "input": "compose.yaml",
            "sandbox": ["docker", "compose.yaml"],
            "setup": "setup.sh",
            "files": {"a": "input.txt", "b": "absent.txt", "c": ""},
        },
        {"input": "q", "sandbox": ["docker", "absent.yaml"], "setup": "echo setup.sh"},
        {"input": image},
    ]
    path = write_lines(tmp_path / "d.jsonl", rows)
    assert assert_same("json_dataset", path) == 3
    (mine,) = [sample for sample in ours.json_dataset(str(path)) if isinstance(sample.input, list)]
    content: Any = mine.input[0].content
    assert content[0].image == str(tmp_path / "image.png")


@pytest.mark.parametrize("seed", range(20))
def test_datasets_in_memory_behave_as_theirs(seed: int) -> None:
    chance = random.Random(seed)
    inputs = ["x" * chance.randint(1, 9) + str(n) for n in range(chance.randint(0, 20))]
    mine: Any = ours.MemoryDataset([ours.Sample(input=text, id=n) for n, text in enumerate(inputs)], "name", "place")
    their: Any = theirs.MemoryDataset(
        [theirs.Sample(input=text, id=n) for n, text in enumerate(inputs)], "name", "place"
    )
    for _ in range(6):
        match chance.choice(["shuffle", "sort", "slice", "filter", "by"]):
            case "shuffle":
                start = chance.randint(0, 99)
                mine.shuffle(start)
                their.shuffle(start)
            case "sort":
                back = chance.random() < 0.5
                mine.sort(reverse=back)
                their.sort(reverse=back)
            case "slice":
                a, b = sorted([chance.randint(-3, 20), chance.randint(-3, 20)])
                mine, their = mine[a:b], their[a:b]
            case "filter":
                parity = chance.randint(0, 1)
                mine = mine.filter(lambda s: s.id % 2 != parity, "odd")  # noqa: B023
                their = their.filter(lambda s: s.id % 2 != parity, "odd")  # noqa: B023
            case "by":
                mine.sort(key=lambda s: -s.id)
                their.sort(key=lambda s: -s.id)
        assert [s.id for s in mine] == [s.id for s in their]
        assert (len(mine), mine.name, mine.location, mine.shuffled) == (
            len(their), their.name, their.location, their.shuffled,
        )  # fmt: skip


def test_what_only_ours_reads(tmp_path: Path) -> None:
    rows = [{"input": "a"}, {"input": "b"}]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    files = {
        "blank.jsonl": "\n".join([*text.splitlines(), "", "  "]).encode(),
        "packed.jsonl.gz": gzip.compress(text.encode()),
        "packed.csv": gzip.compress(b"input\na\nb\n"),
        "lines.json": text.encode(),
    }
    for name, data in files.items():
        path = tmp_path / name
        path.write_bytes(data)
        reader = "csv_dataset" if "csv" in name else "json_dataset"
        assert [sample.input for sample in read(ours, reader, path)] == ["a", "b"], name
        assert isinstance(read(theirs, reader, path), Exception) or name.endswith(".gz"), name
