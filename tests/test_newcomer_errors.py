"""What a newcomer gets wrong, and what they are told: one message that says what, where and what to do.

Each mistake is made from Python (in virtual time) and at the command line, on every backend. A mistake that is seen
before anything runs is an exception there and exit code 2 here; one that ends a run is a log with status "error"
there and exit code 1 here. Nobody is shown a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from attrs import field, frozen

from proctor import eval_async
from proctor.cli.app import main
from proctor.errors import ProctorError, UsageError
from proctor.log import EvalLog, read_eval_log
from proctor.testing import run_virtual

HEAD = """\
from proctor import Task, task
from proctor.dataset import *
from proctor.scorer import *
from proctor.solver import *

ONE = [Sample(input="hello", target="Default")]

"""
FIRST_LINE = HEAD.count("\n") + 1


def task_file(body: str) -> dict[str, str]:
    return {"t.py": HEAD + body}


def task_of(arguments: str, *, takes: str = "", above: str = "") -> dict[str, str]:
    return task_file(f"{above}\n@task\ndef t({takes}):\n    return Task({arguments})\n")


def with_solver(body: str, above: str = "") -> dict[str, str]:
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    made = f"@solver\ndef s():\n    async def solve(state, generate):\n{lines}\n    return solve\n"
    return task_of("ONE, solver=s(), scorer=includes()", above=above + made)


def with_scorer(body: str) -> dict[str, str]:
    made = f"""
@scorer(metrics=[accuracy()])
def s():
    async def score(state, target):
        {body}
    return score
"""
    return task_of("ONE, scorer=s()", above=made.lstrip())


NOT_ASYNC = """
@solver
def s():
    def solve(state, generate):
        return state
    return solve
"""


def with_data(name: str, text: str, reader: str | None = None) -> dict[str, str]:
    reader = reader or ("csv_dataset" if name.endswith(".csv") else "json_dataset")
    return {**task_of(f"{reader}({name!r})"), name: text}


GOOD = task_of("ONE, scorer=includes()")


@frozen(kw_only=True)
class Mistake:
    """One mistake and what must be said of it.

    Attributes:
        says: texts that the message holds. says_cli, says_python: where the two say it in their own words.
        files: what is in the working folder. tasks, options: given to `eval`, and as arguments and flags.
        flags: given at the command line in place of `options`. environment: variables.
        ends_a_run: it shows only when samples run. raises: in Python, in place of a `UsageError`.
        only: "python" or "cli" where the other has no such mistake. backend: where only one makes it.
    """

    says: tuple[str, ...]
    files: Mapping[str, str] = field(factory=lambda: GOOD)
    tasks: tuple[Any, ...] = ("t.py",)
    options: Mapping[str, Any] = field(factory=dict)
    flags: tuple[str, ...] | None = None
    environment: Mapping[str, str] = field(factory=dict)
    says_cli: tuple[str, ...] = ()
    says_python: tuple[str, ...] = ()
    ends_a_run: bool = False
    raises: type[Exception] = UsageError
    code: int | None = None
    only: str | None = None
    backend: str | None = None
    command: str | None = "eval"


NO_MODEL = {"model": None}

MISTAKES: dict[str, Mistake] = {
    # -- which tasks
    "a file that is not there, nearly": Mistake(
        tasks=("tt.py",), says=("task file tt.py does not exist", "did you mean t.py?")
    ),
    "a file that is not there at all": Mistake(
        tasks=("evals/zzz.py",), says=("evals/zzz.py does not exist", "looked up in {cwd}")
    ),
    "a folder that is not there": Mistake(
        tasks=("evals/",), says=("the folder evals/ does not exist", "looked up in {cwd}")
    ),
    "a folder without tasks": Mistake(
        files={"d/readme.txt": ""}, tasks=("d",), says=("{cwd}/d holds no task", "decorated with @task")
    ),
    "no argument in a folder without tasks": Mistake(
        files={}, tasks=(), says=("{cwd} holds no task", "decorated with @task")
    ),
    "a folder whose only file has a slip": Mistake(
        files={"d/t.py": "x = (\n"}, tasks=("d",), says=("d/t.py, line 1", "was never closed")
    ),
    "a file without a task": Mistake(files={"t.py": "x = 1\n"}, says=("t.py holds no task", "@task")),
    "a task function without its decorator": Mistake(
        files=task_file("def t():\n    return Task(ONE)\n"), says=("t.py holds no task", "decorate", "@task")
    ),
    "a task of Inspect's": Mistake(
        files={
            "inspect_ai.py": "def task(f):\n    return f\n",
            "t.py": "from inspect_ai import task\n@task\ndef t():\n    pass\n",
        },
        says=("t.py: its tasks are made with inspect_ai", "from proctor"),
    ),
    "a name that the file has not": Mistake(
        tasks=("t.py@addition",), says=("t.py has no task called 'addition'", "it has t")
    ),
    "a name that nothing has": Mistake(
        tasks=("arithmetics",), says=("'arithmetics' is neither a file, a folder nor a registered task", "Name a file")
    ),
    "a file that is no Python": Mistake(
        files={"data.jsonl": "{}"}, tasks=("data.jsonl",), says=("data.jsonl is not a Python file",)
    ),
    "a file that is not valid Python": Mistake(
        files={"t.py": "def t(:\n    pass\n"}, says=("t.py, line 1: invalid syntax",)
    ),
    "an import of what is not installed": Mistake(
        files={"t.py": "\nimport notinstalled\n"}, says=("t.py, line 2", "no module notinstalled", "is it installed in")
    ),
    "an import of a name that is not there": Mistake(
        files={"t.py": "from proctor.scorer import inclodes\n"},
        says=("t.py, line 1", "cannot import name 'inclodes'", "did you mean includes"),
    ),
    "a file that fails": Mistake(files={"t.py": "x = 1\ny = x / 0\n"}, says=("t.py, line 2: ZeroDivisionError",)),
    "two tasks of one name": Mistake(
        files={"a.py": GOOD["t.py"], "b.py": GOOD["t.py"]},
        tasks=("a.py", "b.py"),
        says=("two tasks are called 't'", "a.py", "b.py", "@task(name=…)"),
    ),
    "one task named twice": Mistake(
        tasks=("t.py", "t.py"), says=("two tasks are called 't' (both in", "name each once")
    ),
    "a task function that returns nothing": Mistake(
        files=task_file("@task\ndef t():\n    Task(ONE)\n"), says=("@task t returned NoneType", "must return a Task")
    ),
    "an empty list of tasks": Mistake(tasks=([],), only="python", says=("no task was given", "name a file")),
    "something that is no task": Mistake(
        tasks=(3,), only="python", says=("a task must be a Task, a @task function or a name", "not 3")
    ),
    # -- arguments of tasks
    "an argument that the task has not": Mistake(
        files=task_of("ONE * level", takes="level=1"),
        options={"task_args": {"levl": 2}},
        says=("task t has no argument 'levl'", "did you mean level?"),
    ),
    "an argument that is missing": Mistake(
        files=task_of("ONE", takes="level"), says=("task t needs a value for 'level'", "-T level=…")
    ),
    "an argument of the wrong kind": Mistake(
        files=task_of("ONE * level", takes="level=1"),
        options={"task_args": {"level": "high"}},
        raises=TypeError,
        code=1,
        says=("can't multiply sequence",),
        says_cli=("t.py, line 11, in t", "return Task(ONE * level)"),
    ),
    "an argument without a value": Mistake(
        flags=("-T", "level"), only="cli", says=("-T must be name=value, not 'level'",)
    ),
    "an argument of Task that there is not": Mistake(
        files=task_of("datset=ONE"),
        raises=TypeError,
        code=1,
        says=("unexpected keyword argument 'datset'", "did you mean dataset?"),
        says_cli=("t.py, line 11, in t",),
    ),
    # -- datasets
    "a dataset file that is not there": Mistake(
        files={**task_of("json_dataset('questions.json')"), "question.json": "[]"},
        says=("dataset file not found", "questions.json", "did you mean question.json?"),
    ),
    "an empty dataset file": Mistake(files=with_data("q.jsonl", ""), says=("q.jsonl: the dataset has no rows",)),
    "an empty list of samples": Mistake(
        files=task_of("[]"), says=("the dataset of the task holds no samples", "Task(dataset=…)")
    ),
    "broken JSON": Mistake(
        files=with_data("q.jsonl", '{"input": "a"}\n{"input": b}\n'),
        says=("q.jsonl, row 2, column 11", "not valid JSON"),
    ),
    "rows of other names": Mistake(
        files=with_data("q.jsonl", '{"question": "a"}\n'),
        says=("q.jsonl, row 1, column 'input'", "the row has question", "FieldSpec(input=…)"),
    ),
    "a row of CSV that is too short": Mistake(
        files=with_data("q.csv", "input,target\na,b\nc\n"), says=("q.csv, row 2 (line 3)", "no value for target")
    ),
    "a dataset function that fails": Mistake(
        files={**task_of("json_dataset('q.jsonl', lambda row: Sample(row['q']))"), "q.jsonl": '{"question": "a"}\n'},
        says=("q.jsonl, row 1", "KeyError: 'q'", "the row has the columns question"),
    ),
    "ids that are repeated": Mistake(
        files=with_data("q.jsonl", '{"input": "a", "id": 1}\n{"input": "b", "id": "1"}\n'),
        says=("q.jsonl: samples 1 and 2 have the same id '1'", "auto_id=True"),
    ),
    "a path in place of a dataset": Mistake(
        files=task_of("'q.jsonl'"), says=("Task(dataset=…) takes a dataset or an iterable of Sample, not 'q.jsonl'",)
    ),
    "dicts in place of samples": Mistake(
        files=task_of("[{'input': 'x'}]"), says=("Task(dataset=…): item 1 is a dict, not a Sample", "Sample(input=…")
    ),
    "a number as target": Mistake(
        files=task_of("[Sample(input='2+2', target=4)]"),
        raises=TypeError,
        code=1,
        says=("Sample target must be text", "not 4", "str(…)"),
        says_cli=("t.py, line 11, in t",),
    ),
    "an id that no sample has": Mistake(
        options={"sample_id": "99"}, says=("no sample of the dataset has the id '99'", "its ids are 1")
    ),
    "a range behind the last sample": Mistake(
        options={"limit": (4, 9)}, flags=("--limit", "5-9"), says=("limit 5-9 begins after the last of 1 samples",)
    ),
    # -- solvers and scorers
    "a solver that was not called": Mistake(
        files=task_of("ONE, solver=generate"), says=("solver generate was given as a function", "solver=generate()")
    ),
    "a scorer that was not called": Mistake(
        files=task_of("ONE, scorer=includes"), says=("scorer includes was given as a function", "scorer=includes()")
    ),
    "the name of a scorer": Mistake(
        files=task_of("ONE, scorer='includes'"),
        says=("a scorer must be callable as scorer(state, target)", "not 'includes'"),
    ),
    "a scorer without metrics": Mistake(
        files=task_of("ONE", above="@scorer\ndef s():\n    pass\n"),
        says=("@scorer takes its metrics", "@scorer(metrics=[accuracy()])"),
    ),
    "a solver that is not async": Mistake(
        files=task_of("ONE, solver=s()", above=NOT_ASYNC.lstrip()),
        raises=TypeError,
        code=1,
        says=("the solver 's' returned a plain function", "async def"),
        says_cli=("t.py, line 16, in t",),
    ),
    "a solver factory that returns nothing": Mistake(
        files=task_of("ONE, solver=s()", above="@solver\ndef s():\n    pass\n"),
        raises=TypeError,
        code=1,
        says=("the solver 's' returned NoneType", "async def"),
        says_cli=("t.py, line 14, in t",),
    ),
    "a solver that returns nothing": Mistake(
        files=with_solver("await generate(state)"),
        ends_a_run=True,
        says=("the solver s returned nothing", "return state"),
        says_cli=("t (mock/m): sample 1: ",),
    ),
    "a solver that forgets to await": Mistake(
        files=with_solver("return generate(state)"),
        ends_a_run=True,
        says=("the solver s returned a coroutine", "return await generate(state)"),
        says_cli=("t (mock/m): sample 1: ",),
    ),
    "a solver that fails": Mistake(
        files=with_solver("look_up({})\nreturn state", above="def look_up(facts):\n    return facts['answer']\n"),
        ends_a_run=True,
        says=(),
        says_python=("KeyError", "'answer'"),
        says_cli=(
            "t (mock/m): sample 1: KeyError: 'answer'\n",
            "  t.py, line 13, in solve: look_up({})\n",
            "  t.py, line 9, in look_up: return facts['answer']\n",
        ),
    ),
    "a scorer that fails": Mistake(
        files=with_scorer("return Score(value=state.answer)"),
        ends_a_run=True,
        says=("'TaskState' object has no attribute 'answer'",),
        says_cli=(
            "t (mock/m): sample 1: AttributeError: ",
            "  t.py, line 11, in score: return Score(value=state.answer)\n",
        ),
    ),
    "a scorer that returns a number": Mistake(
        files=with_scorer("return 1.0"),
        ends_a_run=True,
        says=("scorer s returned float", "must return a Score"),
    ),
    "choices that are not there": Mistake(
        files=task_of("ONE, solver=multiple_choice(), scorer=choice()"),
        ends_a_run=True,
        says=("multiple_choice needs samples with choices", "sample 1 has none"),
    ),
    "asyncio's sleep under trio": Mistake(
        files=with_solver("await asyncio.sleep(1)\nreturn state", above="import asyncio\n"),
        ends_a_run=True,
        backend="trio",
        says=("no running event loop",),
        says_cli=(
            "t.py, line 12, in solve",
            "this code calls asyncio, but the run is on trio",
            "use anyio",
            "PROCTOR_ASYNC_BACKEND=asyncio",
        ),
    ),
    "asyncio's threads under trio": Mistake(
        files=with_solver("await asyncio.to_thread(print)\nreturn state", above="import asyncio\n"),
        ends_a_run=True,
        backend="trio",
        says=("no running event loop",),
        says_cli=("t.py, line 12, in solve", "this code calls asyncio, but the run is on trio", "proctor.util.collect"),
    ),
    "trio's sleep under asyncio": Mistake(
        files=with_solver("await trio.sleep(1)\nreturn state", above="import trio\n"),
        ends_a_run=True,
        backend="asyncio",
        says=("must be called from async context",),
        says_cli=(
            "t.py, line 12, in solve",
            "this code calls trio, but the run is on asyncio",
            "PROCTOR_ASYNC_BACKEND=trio",
        ),
    ),
    # -- models
    "no model": Mistake(
        options=NO_MODEL, says=("no model was given for task t", "--model provider/name", "PROCTOR_EVAL_MODEL")
    ),
    "a model without a provider": Mistake(
        options={"model": "gpt-4o"}, says=("model 'gpt-4o'", "a name is provider/model", "openai-api/service/model")
    ),
    "a provider that there is not, nearly": Mistake(
        options={"model": "openai-apy/x/y"},
        says=("no model provider is called 'openai-apy'", "did you mean openai-api"),
    ),
    "a provider that there is not": Mistake(
        options={"model": "nobody/m"}, says=("no model provider is called 'nobody'", "known:", "openai-api")
    ),
    "a model named twice": Mistake(options={"model": "mock/m,mock/m"}, says=("model mock/m is named twice", "once")),
    "a model without its service": Mistake(
        options={"model": "openai-api/gpt-4o"}, says=("openai-api/gpt-4o", "openai-api/<service>/<model>")
    ),
    "no key": Mistake(
        options={"model": "openai-api/groq/m", "model_base_url": "http://127.0.0.1:9/v1"},
        says=("openai-api/groq/m: no API key", "GROQ_API_KEY", "-M api_key=…"),
    ),
    "no base URL": Mistake(
        options={"model": "openai-api/groq/m"},
        says=("openai-api/groq/m: no base URL", "GROQ_BASE_URL", "--model-base-url"),
    ),
    "a base URL without http": Mistake(
        options={"model": "openai-api/groq/m", "model_base_url": "localhost:8000/v1"},
        says=("base URL 'localhost:8000/v1'", "http://"),
    ),
    "an argument that the provider has not": Mistake(
        options={
            "model": "openai-api/groq/m",
            "model_base_url": "http://127.0.0.1:9",
            "model_args": {"api_key": "k", "speed": 3},
        },
        says=("openai-api does not know the model argument speed", "-M"),
    ),
    "a local model whose file is not there": Mistake(
        options={"model": "llama-cpp/llama.gguf"}, says=("llama-cpp/llama.gguf: there is no file", "llama-cpp/smollm2")
    ),
    # -- options
    "a folder for logs that is a file": Mistake(
        files={**GOOD, "logs": ""},
        options={"log_dir": "logs"},
        says=("log_dir logs cannot be made: File exists", "--log-dir"),
    ),
    "a folder for logs that cannot be made": Mistake(
        files={**GOOD, "f": ""},
        options={"log_dir": "f/logs"},
        says=("log_dir f/logs cannot be made: Not a directory", "--log-dir"),
    ),
    "a folder for logs that cannot be written": Mistake(
        options={"log_dir": "/proc/self"}, says=("log_dir /proc/self cannot be written to", "--log-dir")
    ),
    **{
        f"{option} = {value}": Mistake(
            options={option: value},
            says=(f"at least {least}",),
            says_python=(option,),
            says_cli=(f"--{option.replace('_', '-')} must be",),
        )
        for option, value, least in (
            ("max_tasks", 0, 1),
            ("max_samples", -1, 1),
            ("max_connections", 0, 1),
            ("epochs", 0, 1),
            ("max_tokens", 0, 1),
        )
    },
    "a time limit of nothing": Mistake(
        options={"time_limit": 0},
        says=("must be a number above 0",),
        says_python=("time_limit",),
        says_cli=("--time-limit",),
    ),
    "no samples": Mistake(
        options={"limit": 0},
        says=("limit",),
        says_cli=("--limit must be a number of samples",),
        says_python=("at least 1",),
    ),
    "a text in place of a number": Mistake(
        options={"max_tasks": "many"},
        says=("'many'",),
        says_python=("max_tasks", "a number"),
        says_cli=("--max-tasks must be a whole number",),
    ),
    "a temperature that is none": Mistake(
        options={"temperature": "hot"}, says=("temperature", "number", "'hot'"), says_cli=("--temperature must be",)
    ),
    "a share of errors below nothing": Mistake(
        options={"fail_on_error": -1},
        flags=("--fail-on-error=-1",),
        says=("must be",),
        says_python=("fail_on_error",),
        says_cli=("--fail-on-error", "a share below 1 or a count"),
    ),
    "a reducer that there is not": Mistake(
        flags=("--epochs", "2", "--epochs-reducer", "avg"), only="cli", says=("no reducer is called 'avg'", "mean")
    ),
    "an option that there is not": Mistake(
        options={"max_taks": 3},
        says_python=("no option of eval is called 'max_taks'", "did you mean max_tasks"),
        says=("taks",),
        says_cli=("no such option: --max-taks", "--max-tasks", "proctor eval --help"),
    ),
    "a display that there is not": Mistake(
        options={"display": "fancy"}, says=("no display is called 'fancy'", "plain")
    ),
    "a backend that there is not": Mistake(
        flags=("--async-backend", "curio"),
        only="cli",
        says=("--async-backend must be one of asyncio, trio, not 'curio'",),
    ),
    "a variable that cannot be read": Mistake(
        environment={"PROCTOR_EVAL_MAX_TASKS": "many"}, says=("many", "PROCTOR_EVAL_MAX_TASKS")
    ),
    "a backend in a variable": Mistake(
        environment={"PROCTOR_ASYNC_BACKEND": "curio"},
        only="cli",
        says=("curio", "asyncio", "trio", "PROCTOR_ASYNC_BACKEND"),
    ),
    # -- commands
    "a command with a slip": Mistake(
        command="evl", only="cli", says=("no command is called 'evl'", "did you mean eval?")
    ),
    "a file in place of a command": Mistake(
        command=None, only="cli", options=NO_MODEL, says=("no command is called 't.py'", "proctor eval t.py")
    ),
    "a log that is not there": Mistake(
        command="log", tasks=("show", "logs/a.eval"), options=NO_MODEL, only="cli", says=("logs/a.eval", "No such file")
    ),
    "a file that is no log": Mistake(
        files={"a.eval": "hello"},
        command="log",
        tasks=("show", "a.eval"),
        options=NO_MODEL,
        only="cli",
        says=("a.eval", ".eval log"),
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, and no variable of ours, of Inspect's or with a key."""
    for name in list(os.environ):
        if name.startswith(("PROCTOR_", "INSPECT_", "OPENAI_", "GROQ_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # loading a task file adds its folder
    monkeypatch.delitem(sys.modules, "inspect_ai", raising=False)
    return tmp_path


@pytest.fixture
def made(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch, backend: str) -> Mistake:
    """The mistake of this test, its files written."""
    mistake: Mistake = request.param
    if mistake.backend not in {None, backend.partition("-")[0]}:
        pytest.skip(f"a mistake under {mistake.backend} only")
    for name, text in mistake.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name, value in mistake.environment.items():
        monkeypatch.setenv(name, value)
    return mistake


def cases(where: str) -> Any:
    chosen = {name: mistake for name, mistake in MISTAKES.items() if mistake.only in {None, where}}
    return pytest.mark.parametrize("made", list(chosen.values()), ids=list(chosen), indirect=True)


def assert_says(text: str, words: tuple[str, ...], folder: Path) -> None:
    for word in words:
        assert word.format(cwd=folder) if "{cwd}" in word else word in text, f"{word!r} is missing in:\n{text}"


def test_there_are_at_least_forty() -> None:
    assert sum(mistake.only != "python" for mistake in MISTAKES.values()) >= 40
    assert sum(mistake.only != "cli" for mistake in MISTAKES.values()) >= 40


def evaluate(mistake: Mistake, backend: str) -> list[EvalLog]:
    options = {"model": "mock/m", "display": "none", "log_dir": "logs", **mistake.options}
    tasks: Any = mistake.tasks[0] if len(mistake.tasks) == 1 else list(mistake.tasks) or None
    logs: list[EvalLog] = run_virtual(backend, partial(eval_async, tasks, **options))
    return logs


@cases("python")
def test_from_python(made: Mistake, folder: Path, backend: str) -> None:
    if made.ends_a_run:
        [log] = evaluate(made, backend)
        assert log.status == "error"
        assert log.error is not None
        assert_says(log.error.message, (*made.says, *made.says_python), folder)
        if any("t.py, line" in words for words in made.says_cli):
            first = next(line for line in log.error.traceback.splitlines() if line.startswith("  File "))
            assert "t.py" in first, "the engine's frames above the user's say nothing to the user"
        assert read_eval_log(log.location).status == "error"
        return
    with pytest.raises(made.raises) as caught:
        evaluate(made, backend)
    error = caught.value
    assert isinstance(error, ProctorError) or made.code == 1
    assert_says("\n".join([str(error), *getattr(error, "__notes__", ())]), (*made.says, *made.says_python), folder)
    assert not list(folder.glob("logs/*.eval"))


def command_line(mistake: Mistake) -> list[str]:
    """The mistake as a command: options become flags."""
    given = [mistake.command] if mistake.command else []
    given += mistake.tasks
    options = {"model": "mock/m", "display": "plain", **mistake.options}
    if mistake.command == "log" or mistake.command is None:
        return given
    given += mistake.flags or ()
    for name, value in options.items():
        if value is None or (mistake.flags and name in mistake.options):
            continue
        letter = {"task_args": "-T", "model_args": "-M"}.get(name)
        if letter:
            for key, item in value.items():
                given += [letter, f"{key}={item}"]
        else:
            given += [f"--{name.replace('_', '-')}", str(value)]
    return given


@cases("cli")
def test_at_the_command_line(
    made: Mistake, folder: Path, backend: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "PROCTOR_ASYNC_BACKEND" not in made.environment:
        monkeypatch.setenv("PROCTOR_ASYNC_BACKEND", backend.partition("-")[0])
    code = main(command_line(made))
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    assert "fault of proctor" not in err
    says = (*made.says, *made.says_cli)
    assert_says(out + err, says, folder)
    if made.ends_a_run:
        assert code == 1
        for words in says:
            assert (out + err).count(words) == 1, f"{words!r} is said more than once:\n{out}{err}"
        assert "inspect view --log-dir logs" in out
    else:
        assert code == (made.code or 2)
        assert out == ""
        assert [line for line in err.splitlines() if line.startswith("proctor: ")] == err.splitlines()[:1]
        assert not list(folder.glob("logs/*.eval"))


def test_targets_without_a_scorer_are_told_once(
    folder: Path, capsys: pytest.CaptureFixture[str], backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_ASYNC_BACKEND", backend.partition("-")[0])
    (folder / "t.py").write_text(task_of("ONE")["t.py"])
    assert main(["eval", "t.py", "--model", "mock/m", "--display", "plain"]) == 0
    out, _ = capsys.readouterr()
    assert out.count("t: the samples have targets, but the task has no scorer, so nothing is scored") == 1
    assert "Task(scorer=includes())" in out
