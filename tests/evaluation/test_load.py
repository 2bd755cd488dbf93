"""Tasks by file, by folder and by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.errors import NotFoundError, TaskFileError, UsageError
from proctor.evaluation.load import list_tasks, load_tasks

TASK = """
from proctor import Task, task
from proctor.dataset import Sample

@task
def {name}(n: int = 1):
    return Task([Sample("x")] * 0 + [Sample("x") for _ in range(n)])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "one.py").write_text(TASK.format(name="one"))
    (tmp_path / "two.py").write_text(
        TASK.format(name="two") + "\n@task(name='zwei', light=True)\ndef deux():\n    return Task([Sample('y')])\n"
    )
    for hidden in (".hidden", "_private"):
        (tmp_path / hidden).mkdir()
        (tmp_path / hidden / "no.py").write_text(TASK.format(name="no"))
    (tmp_path / "_skipped.py").write_text(TASK.format(name="skipped"))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "three.py").write_text(TASK.format(name="three"))
    (tmp_path / "broken.py").write_text("def oops(:\n")
    return tmp_path


def test_a_folder_is_listed_without_running_it(folder: Path) -> None:
    (folder / "loud.py").write_text("raise SystemExit('ran')\nfrom proctor import task\n@task\ndef loud(): ...\n")
    listed = list_tasks([folder])
    assert [info.name for info in listed] == ["loud", "one", "three", "two", "zwei"]
    assert dict(listed[-1].attribs) == {"light": True}


def test_a_file_gives_all_its_tasks_or_the_one_named(folder: Path) -> None:
    assert [t.name for t in load_tasks(str(folder / "two.py"), {})] == ["two", "zwei"]
    assert [t.name for t in load_tasks(f"{folder / 'two.py'}@zwei", {})] == ["zwei"]


def test_a_folder_gives_every_task_in_it(folder: Path) -> None:
    (folder / "broken.py").unlink()
    assert [t.name for t in load_tasks(str(folder), {})] == ["one", "three", "two", "zwei"]


def test_a_task_imported_from_another_file_is_not_of_this_one(folder: Path) -> None:
    (folder / "uses.py").write_text(TASK.format(name="own") + "\nfrom one import one\n")
    assert [t.name for t in load_tasks(str(folder / "uses.py"), {})] == ["own"]


def test_arguments_are_passed(folder: Path) -> None:
    [task] = load_tasks(str(folder / "one.py"), {"n": 3})
    assert len(task.dataset) == 3
    assert task.info.params == {"n": 3}


@pytest.mark.parametrize(
    ("spec", "error", "words"),
    [
        ("missing.py", NotFoundError, "does not exist"),
        ("onee.py", NotFoundError, "did you mean .*one.py"),
        ("two.py@nine", NotFoundError, "it has two, zwei"),
        ("broken.py", TaskFileError, "line 1"),
        ("empty.py", TaskFileError, "@task"),
        ("crash.py", TaskFileError, "line 2: ZeroDivisionError"),
    ],
)
def test_what_cannot_be_loaded_is_told(folder: Path, spec: str, error: type[Exception], words: str) -> None:
    (folder / "empty.py").write_text("x = 1\n")
    (folder / "crash.py").write_text("x = 1\ny = x / 0\n")
    with pytest.raises(error, match=words):
        load_tasks(str(folder / spec), {})


def test_an_unknown_name_is_told_with_the_forms_there_are() -> None:
    with pytest.raises(NotFoundError, match=r"evals/arithmetic\.py"):
        load_tasks("nothing_like_this", {})


def test_an_argument_that_the_task_does_not_take_is_told(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"no argument 'm'.*it takes n"):
        load_tasks(str(folder / "one.py"), {"m": 3})


def test_an_argument_without_default_must_be_given(folder: Path) -> None:
    (folder / "needs.py").write_text("from proctor import Task, task\n@task\ndef needs(level):\n    return Task()\n")
    with pytest.raises(UsageError, match="-T level="):
        load_tasks(str(folder / "needs.py"), {})


def test_a_task_function_must_return_a_task(folder: Path) -> None:
    (folder / "odd.py").write_text("from proctor import task\n@task\ndef odd():\n    return 3\n")
    with pytest.raises(UsageError, match="must return a Task"):
        load_tasks(str(folder / "odd.py"), {})
