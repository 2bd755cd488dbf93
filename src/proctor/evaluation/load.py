"""Finding tasks: in files, in folders, by registered name.

A file is listed by reading it (`list_tasks`), and run only when a task of it is wanted (`load_tasks`).
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import inspect
import os
import re
import sys
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from attrs import frozen

from proctor import registry
from proctor.errors import NotFoundError, TaskFileError, UsageError, with_notes
from proctor.evaluation.task import FILE_ATTRIBUTE, Task

TaskFactory = Callable[..., Task]


@frozen
class TaskInfo:
    """A task as found in a file. `attribs` are the constant arguments of its decorator."""

    file: str
    name: str
    attribs: Mapping[str, Any]


def list_tasks(paths: Sequence[str | Path] = (), *, root: str | Path = ".") -> list[TaskInfo]:
    """The tasks in files and folders, found without running them.

    Args:
        paths: files and folders; default the working folder. Hidden folders and those starting with ``_`` are skipped.

    Raises:
        NotFoundError: a path does not exist.
        TaskFileError: a file named here (not merely found in a folder) is not valid Python.
    """
    found: list[TaskInfo] = []
    for path in [Path(p) for p in paths] or [Path(root)]:
        if not path.exists():
            raise NotFoundError(f"{path} does not exist; name a Python file or a folder with tasks")
        for file in _python_files(path):
            found += _listed(file, strict=path.is_file())
    return found


def task_factories(spec: str) -> list[TaskFactory]:
    """The task functions that a name stands for.

    Args:
        spec: ``file.py``, ``file.py@name``, a folder, or the name of a registered task.

    Raises:
        NotFoundError: no such file, task or name.
        TaskFileError: the file cannot be run or holds no task.
    """
    place, _, name = spec.rpartition("@") if "@" in spec else (spec, "", "")
    path = Path(place)
    if path.is_dir():
        return _from_folder(path, name)
    if place.endswith(("/", os.sep)):
        raise NotFoundError(f"the folder {place} does not exist; paths are looked up in {Path.cwd()}")
    if path.suffix == ".py" or path.is_file():
        if not path.is_file():
            near = _near_files(path)
            hint = f"did you mean {near}?" if near else f"paths are looked up in {Path.cwd()}"
            raise NotFoundError(f"task file {place} does not exist; {hint}")
        return _from_file(path, name)
    try:
        return [registry.lookup("task", spec)]
    except NotFoundError as error:
        raise NotFoundError(
            f"{spec!r} is neither a file, a folder nor a registered task: {error}. "
            "Name a file (evals/arithmetic.py), a task in it (evals/arithmetic.py@addition) or a folder."
        ) from None


def create_task(factory: TaskFactory, task_args: Mapping[str, Any]) -> Task:
    """Call a task function with those of the arguments it takes.

    Raises:
        UsageError: an argument it does not take.
    """
    info = registry.info_of(factory)
    name = info.name if info else getattr(factory, "__name__", str(factory))
    parameters = inspect.signature(factory).parameters
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    unknown = [key for key in task_args if key not in parameters]
    if unknown and not takes_any:
        known = ", ".join(parameters) or "no argument"
        near = difflib.get_close_matches(unknown[0], parameters, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"task {name} has no argument {unknown[0]!r}{hint} (it takes {known})")
    missing = [
        p.name
        for p in parameters.values()
        if p.default is p.empty and p.kind in {p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY} and p.name not in task_args
    ]
    if missing:
        raise UsageError(f"task {name} needs a value for {missing[0]!r}: give it with -T {missing[0]}=… or task_args")
    try:
        made: Any = factory(**task_args)
    except TypeError as error:
        raise _with_near_argument(error) from error.__cause__
    if not isinstance(made, Task):
        raise UsageError(f"{name} returned {type(made).__name__}; a task function must return a Task")
    return made


def _with_near_argument(error: TypeError) -> BaseException:
    """A wrong argument of `Task` gets the right one as a note: Python says only from 3.14 on which was meant."""
    wrong = re.search(r"Task\.__init__\(\) got an unexpected keyword argument '(\w+)'", str(error))
    if wrong is None:
        return error
    known = list(inspect.signature(Task.__init__).parameters)[1:]
    return with_notes(error, registry.unknown("argument of Task", wrong[1], known))


def load_tasks(spec: str, task_args: Mapping[str, Any]) -> list[Task]:
    """`task_factories` and `create_task` in one."""
    return [create_task(factory, task_args) for factory in task_factories(spec)]


def _from_folder(path: Path, name: str) -> list[TaskFactory]:
    listed = [info for info in list_tasks([path]) if not name or info.name == name]
    if not listed:
        for each in _python_files(path):
            _listed(each, strict=True)  # one that cannot be read may be the one that was meant
        what = f"no task called {name}" if name else "no task"
        raise TaskFileError(
            f"the folder {path.resolve()} holds {what}: write a function decorated with @task in a file of it"
        )
    by_file: dict[str, list[str]] = {}
    for info in listed:
        by_file.setdefault(info.file, []).append(info.name)
    out: list[TaskFactory] = []
    for file, wanted in by_file.items():
        out += [f for f in _from_file(Path(file), "") if _name(f) in wanted]
    return out


def _from_file(path: Path, name: str) -> list[TaskFactory]:
    module = run_file(path)
    own: list[Any] = [
        value
        for value in vars(module).values()
        if callable(value)
        and (info := registry.info_of(value)) is not None
        and info.kind == "task"
        and _same_file(getattr(value, FILE_ATTRIBUTE, None), path)
    ]
    if not own:
        if any(map(_of_inspect, vars(module).values())):
            raise TaskFileError(
                f"{path}: its tasks are made with inspect_ai; import Task, task, solvers and scorers from proctor "
                "(the names are the same)"
            )
        raise TaskFileError(f"{path} holds no task: decorate a function that returns a Task with @task")
    if not name:
        return own
    chosen = [value for value in own if _name(value) == name]
    if not chosen:
        raise NotFoundError(f"{path} has no task called {name!r}; it has {', '.join(map(_name, own))}")
    return chosen


def _of_inspect(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).split(".")[0] == "inspect_ai"


def _name(factory: TaskFactory) -> str:
    info = registry.info_of(factory)
    return info.name if info else factory.__name__


def _same_file(file: str | None, path: Path) -> bool:
    return file is not None and Path(file).resolve() == path.resolve()


def run_file(path: Path) -> ModuleType:
    """Run a task file as a module of its own, its folder importable meanwhile as for a script."""
    resolved = path.resolve()
    name = f"proctor_tasks_{resolved.stem}_{zlib.crc32(str(resolved).encode()):08x}"
    spec = importlib.util.spec_from_file_location(name, resolved)
    if spec is None or spec.loader is None:
        raise TaskFileError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(resolved.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise TaskFileError(f"{path}, line {error.lineno}: {error.msg}") from None
    except UsageError:
        raise
    except ModuleNotFoundError as error:
        where = _own_line(error, resolved)
        raise TaskFileError(
            f"{path}{where}: there is no module {error.name}; is the name right, and is it installed in {sys.prefix}?"
        ) from error
    except Exception as error:
        where = _own_line(error, resolved)
        text = f"{path}{where}: {type(error).__name__}: {error}{_near_name(error)}"
        raise TaskFileError(text) from error
    return module


def _near_name(error: Exception) -> str:
    """Which name was meant by one that a module does not have."""
    wrong = re.match(r"cannot import name '(\w+)' from '([\w.]+)'", str(error))
    if not isinstance(error, ImportError) or wrong is None:
        return ""
    near = difflib.get_close_matches(wrong[1], dir(sys.modules.get(wrong[2])), n=2)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _own_line(error: Exception, file: Path) -> str:
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
    return f", line {lines[-1]}" if lines else ""


def _python_files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for child in sorted(path.iterdir()):
        if child.name.startswith((".", "_")):
            continue
        if child.is_dir():
            yield from _python_files(child)
        elif child.suffix == ".py":
            yield child


def _listed(file: Path, *, strict: bool) -> list[TaskInfo]:
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"), filename=str(file))
    except (SyntaxError, UnicodeDecodeError, ValueError) as error:
        if strict:
            line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
            raise TaskFileError(f"{file}{line}: {getattr(error, 'msg', error)}") from None
        return []
    found: list[TaskInfo] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                attribs = _task_decorator(decorator)
                if attribs is not None:
                    name = attribs.pop("name", node.name)
                    found.append(TaskInfo(str(file), name, attribs))
                    break
    return found


def _task_decorator(node: ast.expr) -> dict[str, Any] | None:
    """The constant keywords of a decorator ``@task``, ``@proctor.task`` or ``@task(…)``; None if it is another."""
    call = node if isinstance(node, ast.Call) else None
    target = call.func if call else node
    name = target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""
    if name != "task":
        return None
    keywords = call.keywords if call else []
    return {k.arg: k.value.value for k in keywords if k.arg and isinstance(k.value, ast.Constant)}


def _near_files(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return ""
    names = [p.name for p in folder.iterdir() if p.suffix == ".py"]
    return " or ".join(str(folder / n) for n in difflib.get_close_matches(path.name, names, n=2))
