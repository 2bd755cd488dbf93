"""A dataset that cannot be read: one message that names the file, the row and the column."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from proctor.dataset import FieldSpec, MemoryDataset, Sample, csv_dataset, file_dataset, json_dataset
from proctor.dataset.dataset import identified
from proctor.errors import DatasetError, OptionError


def refused(path: Path | str, reader: Any = json_dataset, **options: Any) -> str:
    """The message with which reading fails, its path shortened to the name."""
    with pytest.raises(DatasetError) as caught:
        reader(str(path), **options)
    return str(caught.value).replace(str(Path(path).parent) + "/", "")


def put(path: Path, *lines: str | bytes) -> Path:
    path.write_bytes(b"\n".join(line.encode() if isinstance(line, str) else line for line in lines))
    return path


def test_a_missing_file_is_named_and_a_near_one_suggested(tmp_path: Path) -> None:
    put(tmp_path / "questions.jsonl", '{"input": "q"}')
    assert (
        refused(tmp_path / "question.jsonl") == "dataset file not found: question.jsonl; did you mean questions.jsonl?"
    )
    assert refused(tmp_path / "zzz") == "dataset file not found: zzz"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    assert f"the folder {tmp_path}/no does not exist" in refused(tmp_path / "no" / "data.jsonl")


def test_a_folder_is_no_dataset(tmp_path: Path) -> None:
    assert "Is a directory" in refused(tmp_path)


def test_a_remote_path_says_that_it_must_be_copied() -> None:
    assert "not gs://" in refused("gs://bucket/data.jsonl")


@pytest.mark.parametrize("text", ["", "\n\n", "[]", "input,target\n"])
def test_an_empty_file_has_no_rows(tmp_path: Path, text: str) -> None:
    reader = csv_dataset if "," in text else json_dataset
    path = put(tmp_path / f"empty.{'json' if text == '[]' else 'jsonl'}", text)
    assert refused(path, reader).endswith(": the dataset has no rows")


def test_broken_json_is_found_by_row_and_column(tmp_path: Path) -> None:
    path = put(tmp_path / "d.jsonl", '{"input": "a"}', "", '{"input": "b", target: 1}')
    assert refused(path).startswith("d.jsonl, row 3, column 16: this is not valid JSON: Expecting property name")


def test_broken_json_in_a_document_is_found_by_line_and_column(tmp_path: Path) -> None:
    path = put(tmp_path / "d.json", "[", '  {"input": "a"},', '  {"input": "b" "target": 1}', "]")
    assert refused(path) == "d.json, line 3, column 17: this is not valid JSON: Expecting ',' delimiter"


def test_a_row_that_is_no_object_is_refused(tmp_path: Path) -> None:
    assert "d.jsonl, row 2: a row must be a JSON object" in refused(put(tmp_path / "d.jsonl", '{"input": "a"}', "[1]"))
    assert "d.json, row 2: a row must be a JSON object" in refused(put(tmp_path / "d.json", '[{"input": "a"}, "b"]'))


def test_text_in_another_encoding_is_refused_with_the_row(tmp_path: Path) -> None:
    path = put(tmp_path / "d.jsonl", '{"input": "a"}', '{"input": "ü"}'.encode("latin-1"))
    assert refused(path) == "d.jsonl, row 2: the text is not UTF-8 (byte 12); pass its encoding=…"
    assert json_dataset(str(path), encoding="latin-1")[1].input == "ü"
    assert "encoding='nonsense'" in refused(path, encoding="nonsense")


def test_a_missing_column_is_named_with_those_there_are(tmp_path: Path) -> None:
    path = put(tmp_path / "d.jsonl", '{"question": "a", "answer": "b"}')
    assert refused(path) == (
        "d.jsonl, row 1, column 'input': there is none; the row has question, answer. "
        "Name the right one: FieldSpec(input=…)"
    )


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"input": ""}, "column 'input': the input is empty"),
        ({"input": 5}, "column 'input': the input must be text or a list of chat messages, not int"),
        ({"input": [{"role": "who", "content": "x"}]}, "column 'input': the role of a chat message must be one of"),
        ({"input": "q", "id": 1.5}, "column 'id': an id must be a whole number or text, not 1.5"),
        ({"input": "q", "metadata": "{"}, "column 'metadata': this is not valid JSON"),
        ({"input": "q", "metadata": [1]}, "column 'metadata': it must be a JSON object, not list"),
        ({"input": "q", "files": {"a": 1}}, "column 'files': files must be a JSON object of text by path"),
        ({"input": "q", "sandbox": [1]}, "column 'sandbox': a sandbox must be a type or a list"),
    ],
)
def test_a_bad_value_is_named_by_row_and_column(tmp_path: Path, record: dict[str, Any], message: str) -> None:
    path = put(tmp_path / "d.jsonl", '{"input": "fine"}', json.dumps(record))
    assert refused(path).startswith(f"d.jsonl, row 2, {message}")


def test_csv_rows_are_counted_without_the_header_and_lines_with_it(tmp_path: Path) -> None:
    path = put(tmp_path / "d.csv", "input,metadata", '"two', 'lines",{}', "b,{", "")
    assert refused(path, csv_dataset).startswith("d.csv, row 2 (line 4), column 'metadata': this is not valid JSON")


def test_a_ragged_csv_row_is_refused(tmp_path: Path) -> None:
    short = put(tmp_path / "short.csv", "input,target,id", "a,b", "")
    assert refused(short, csv_dataset) == "short.csv, row 1 (line 2): 2 values for 3 columns: no value for id"
    long = put(tmp_path / "long.csv", "input,target", "a,b,c,d", "")
    assert refused(long, csv_dataset) == "long.csv, row 1 (line 2): 4 values for 2 columns: nothing names 'c', 'd'"


def test_a_quote_that_is_never_closed_is_suspected(tmp_path: Path) -> None:
    path = put(tmp_path / "d.csv", "input,target", "a,b", '"c,d', "e,f", "g,h", "")
    assert "row 2 (line 3)" in refused(path, csv_dataset)
    assert "is a quote not closed?" in refused(path, csv_dataset)


def test_a_damaged_gzip_file_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress("".join(f'{{"input": "question {n}"}}\n' for n in range(2_000)).encode())
    assert len(json_dataset(str(put(tmp_path / "whole.jsonl.gz", whole)))) == 2_000
    assert "damaged or cut off" in refused(put(tmp_path / "cut.jsonl.gz", whole[:-20]))
    assert "damaged or cut off" in refused(put(tmp_path / "bad.jsonl.gz", whole[:40] + bytes(40) + whole[80:]))


def test_a_function_that_fails_on_a_row_is_named(tmp_path: Path) -> None:
    path = put(tmp_path / "d.jsonl", '{"q": "a", "a": 1}', '{"q": "b"}')

    def record_to_sample(record: dict[str, Any]) -> Sample:
        return Sample(input=record["q"], target=str(record["a"]))

    with pytest.raises(DatasetError) as caught:
        json_dataset(str(path), record_to_sample)
    assert "row 2: record_to_sample raised KeyError: 'a'; the row has the columns q" in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_function_must_return_samples(tmp_path: Path) -> None:
    path = put(tmp_path / "d.jsonl", '{"q": "a"}')
    assert "row 1: <lambda> returned dict; it must return a Sample" in refused(
        path, sample_fields=lambda record: record
    )


def test_a_sample_with_a_number_as_target_says_what_to_do() -> None:
    with pytest.raises(TypeError, match="Sample target must be text or a list of texts, not 4"):
        Sample(input="2+2", target=4)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Sample input must be text or a list of messages, not int"):
        Sample(input=4)  # type: ignore[arg-type]


def test_an_unknown_ending_is_refused(tmp_path: Path) -> None:
    assert "no dataset reader for .parquet" in refused(put(tmp_path / "d.parquet", "x"), file_dataset)


@pytest.mark.parametrize(
    "options",
    [{"limit": 0}, {"limit": -1}, {"limit": True}, {"shuffle": -1}, {"shuffle": 3, "seed": 4}, {"shuffle": "yes"}],
)
def test_options_out_of_range_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    path = put(tmp_path / "d.jsonl", '{"input": "q"}')
    with pytest.raises(OptionError, match=next(iter(options))):
        json_dataset(str(path), **options)


def test_options_that_a_reader_does_not_have_are_refused(tmp_path: Path) -> None:
    path = put(tmp_path / "d.jsonl", '{"input": "q"}')
    with pytest.raises(OptionError, match="parse_float"):
        json_dataset(str(path), parse_float=str)
    assert json_dataset(str(path), loads=lambda text: {"input": text})[0].input == '{"input": "q"}'


def test_a_repeated_id_is_named_with_both_samples() -> None:
    dataset = MemoryDataset(
        [Sample(input="a", id="x"), Sample(input="b", id=7), Sample(input="c", id="7")], name="quiz"
    )
    with pytest.raises(DatasetError, match="quiz: samples 2 and 3 have the same id '7'"):
        list(identified(dataset))


def test_a_number_given_to_a_sample_can_repeat_an_id_too() -> None:
    with pytest.raises(DatasetError, match="dataset: samples 1 and 2 have the same id 2"):
        list(identified([Sample(input="a", id="2"), Sample(input="b")]))


def test_ids_are_given_in_order_and_samples_left_as_they_are() -> None:
    samples = [Sample(input="a"), Sample(input="b", id="own"), Sample(input="c")]
    assert [sample.id for sample in identified(samples)] == [1, "own", 3]
    assert [sample.id for sample in samples] == [None, "own", None]


def test_shuffling_gives_samples_the_numbers_they_had_and_leaves_the_callers_list_alone() -> None:
    samples = [Sample(input=str(n)) for n in range(1, 30)]
    dataset = MemoryDataset(samples)
    dataset.shuffle(4)
    assert [sample.input for sample in dataset] == [str(sample.id) for sample in dataset]
    assert [sample.input for sample in dataset] != [sample.input for sample in samples]
    assert all(sample.id is None for sample in samples)
    MemoryDataset(samples).sort(key=lambda sample: -int(str(sample.input)))
    assert samples[0].input == "1"


def test_shuffling_choices_needs_targets_that_are_letters() -> None:
    dataset = MemoryDataset(
        [Sample(input="q", choices=["a", "b"], target="a"), Sample(input="q", choices=["a"], target="B")]
    )
    with pytest.raises(DatasetError, match=r"sample 2 .* its target 'B' is not the letter of one of its 1 choices"):
        dataset.shuffle_choices(1)


def test_shuffling_choices_leaves_the_callers_samples_alone() -> None:
    sample = Sample(input="q", choices=["a", "b", "c"], target="C")
    dataset = MemoryDataset([sample])
    for seed in range(5):
        dataset.shuffle_choices(seed)
        (shuffled,) = dataset
        assert shuffled.choices is not None
        assert shuffled.choices["ABC".index(str(shuffled.target))] == "c"
    assert (sample.choices, sample.target) == (["a", "b", "c"], "C")


def test_only_as_many_rows_are_read_as_the_limit_says(tmp_path: Path) -> None:
    path = put(tmp_path / "d.jsonl", '{"input": "a"}', '{"input": "b"}', "not json")
    assert [sample.input for sample in json_dataset(str(path), limit=2)] == ["a", "b"]
    assert "row 3" in refused(path)


def test_rows_are_read_as_they_are_asked_for(tmp_path: Path) -> None:
    from proctor.dataset.readers import stream_samples
    from proctor.dataset.rows import json_line_rows

    path = put(tmp_path / "d.jsonl", '{"input": "a"}', '{"input": "b"}', "not json")
    stream = stream_samples(str(path), json_line_rows, FieldSpec())
    assert [next(stream).input, next(stream).input] == ["a", "b"]
    with pytest.raises(DatasetError, match="row 3"):
        next(stream)


def test_metadata_fits_classes_of_any_kind(tmp_path: Path) -> None:
    from dataclasses import dataclass

    from attrs import frozen

    @frozen
    class Facts:
        level: int
        tag: str = "none"

    @dataclass(frozen=True)
    class Plain:
        level: int

    path = put(tmp_path / "d.jsonl", '{"input": "q", "level": 3, "other": 1}')
    for cls in (Facts, Plain):
        (sample,) = json_dataset(str(path), FieldSpec(metadata=cls))
        assert sample.metadata is not None
        assert sample.metadata["level"] == 3
        assert sample.metadata_as(cls) == cls(level=3)
    with pytest.raises(ValueError, match="does not fit Facts"):
        Sample(input="q", metadata={"tag": "x"}).metadata_as(Facts)


def test_samples_copy_and_dump_as_models_do() -> None:
    sample = Sample(input="q", target="t", sandbox=("docker", "compose.yaml"))
    assert sample.sandbox is not None
    assert (sample.sandbox.type, sample.sandbox.config) == ("docker", "compose.yaml")
    assert sample.model_copy(update={"target": "u"}).target == "u"
    assert sample.model_dump(exclude_none=True)["sandbox"] == {"type": "docker", "config": "compose.yaml"}
    chat: Any = [{"role": "user", "content": "hi"}]
    assert Sample(input=chat).input[0].text == "hi"  # type: ignore[union-attr]


def test_gsm8k_is_read(shared: Path) -> None:
    dataset = json_dataset(str(shared / "data" / "gsm8k" / "test.jsonl"), FieldSpec(input="question", target="answer"))
    assert len(dataset) == 1_319
    assert len({sample.id for sample in identified(dataset)}) == 1_319
