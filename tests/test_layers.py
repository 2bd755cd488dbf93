"""Which module may import which, and what only a few may name at all.

The rules are those of the architecture page's section "Layout". They are checked in the source text, so that an import
inside a function counts too: it only hides a cycle.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "proctor"

LAYERS = (
    ("errors", "registry"),
    ("actors",),
    ("runtime",),
    ("values",),  # the value modules of model and log, and what a tool is: models are called with tools
    ("process", "sandbox"),
    ("model",),
    ("log", "dataset"),
    ("tool",),
    ("solver", "scorer", "agent"),
    ("hooks", "approval"),
    ("evaluation",),
    ("display", "control"),
    ("cli",),
)
VALUES = {
    "model": {"messages", "config", "output", "toolcall", "portable", "schema"},
    "log": {"records", "events", "transcript", "samples", "scores", "spec", "encode", "summaries", "sharing"},
    "tool": {"arguments", "definition", "docstring", "execution", "outcome", "schema", "signature"},
}
KERNEL_MAY_IMPORT = {"anyio", "attrs"}

# What may be named where: paths below the package, a folder with a slash at its end.
ONLY_IN = {
    "asyncio": {"runtime/backend.py", "testing/"},
    "trio": {"runtime/backend.py", "testing/"},
    "time": {"runtime/clock.py", "testing/"},
    "random": {"runtime/runtime.py", "runtime/chance.py", "testing/"},
    "uuid": {"runtime/runtime.py"},
    "secrets": {"runtime/runtime.py"},
    "pytest": {"testing/plugin.py"},
    "hypothesis": {"testing/strategies.py", "testing/supervision_strategies.py"},
    "nest_asyncio": set(),
    "sniffio": set(),
}
ENVIRONMENT_IN = {"runtime/settings.py"}
WALL_CLOCK_IN = {"runtime/clock.py"}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(parsed(path)))


def relative(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def dotted(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def type_checking_blocks(path: Path) -> frozenset[ast.AST]:
    """Every node below an ``if TYPE_CHECKING:``."""
    found: set[ast.AST] = set()
    for node in nodes(path):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for statement in node.body:
                found.update(ast.walk(statement))
    return frozenset(found)


def imports(path: Path, *, types: bool = True) -> Iterator[tuple[int, str]]:
    """The modules that a file imports, anywhere in it, with the line; relative imports made absolute."""
    skipped = frozenset[ast.AST]() if types else type_checking_blocks(path)
    for node in nodes(path):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = dotted(path).split(".")
                if path.name != "__init__.py":
                    package = package[:-1]
                base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield node.lineno, full if is_module(full) else base


def is_module(name: str) -> bool:
    path = SOURCE.parent.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def layer(module: str) -> int | None:
    """The number of a module's layer; None for the package itself, `util` and `testing`, which have their own rules."""
    _, _, inner = module.partition(".")
    part, _, rest = inner.partition(".")
    if rest.partition(".")[0] in VALUES.get(part, set()):
        part = "values"
    return next((number for number, names in enumerate(LAYERS) if part in names), None)


def allowed(path: Path, places: set[str]) -> bool:
    return any(
        relative(path) == place or (place.endswith("/") and relative(path).startswith(place)) for place in places
    )


def test_every_module_has_a_layer() -> None:
    known = {"proctor", "proctor.__main__", "proctor.util"}
    lost = [
        dotted(path)
        for path in modules()
        if layer(dotted(path)) is None and dotted(path) not in known and not relative(path).startswith("testing/")
    ]
    assert lost == []


def test_imports_point_one_way() -> None:
    wrong = []
    for path in modules():
        own = layer(dotted(path))
        if own is None:
            continue
        for line, name in imports(path):
            if not name.startswith("proctor"):
                continue
            other = layer(name)
            if name == "proctor" and uses_of(path, "proctor") <= {"__file__", "__path__"}:
                continue
            if other is None:
                wrong.append(f"{relative(path)}:{line} imports {name}, which nothing inside may import")
            elif other > own:
                wrong.append(f"{relative(path)}:{line} ({LAYERS[own]}) imports {name} ({LAYERS[other]})")
    assert not wrong, "\n".join(wrong)


def test_the_kernel_can_be_used_alone() -> None:
    import sys

    wrong = []
    for path in modules():
        if not relative(path).startswith("actors/"):
            continue
        for line, name in imports(path):
            top = name.partition(".")[0]
            if top == "proctor":
                good = name == "proctor.errors" or name.startswith("proctor.actors")
            else:
                good = top in KERNEL_MAY_IMPORT or top in sys.stdlib_module_names
            if not good:
                wrong.append(f"{relative(path)}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("banned", sorted(ONLY_IN))
def test_modules_that_only_few_may_name(banned: str) -> None:
    """A type that is only annotated (``random.Random``) is no use of the module."""
    wrong = [
        f"{relative(path)}:{line} imports {name}"
        for path in modules()
        if not allowed(path, ONLY_IN[banned])
        for line, name in imports(path, types=False)
        if name.partition(".")[0] == banned and not is_seeded_type(path, line, name)
    ]
    assert not wrong, "\n".join(wrong)


def is_seeded_type(path: Path, line: int, name: str) -> bool:
    """Whether `random` is imported for nothing but its class `Random`, as the type of what is injected."""
    if name != "random" or uses_of(path, "random") - {"Random"}:
        return False
    return not calls_of(path, "Random")


def uses_of(path: Path, module: str) -> set[str]:
    attributes = {
        node.attr
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == module
    }
    names = {
        alias.name
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and node.module == module
        for alias in node.names
    }
    return attributes | names


def calls_of(path: Path, name: str) -> list[int]:
    return [
        node.lineno
        for node in nodes(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name
    ]


def test_the_environment_is_read_in_one_place() -> None:
    wrong = []
    for path in modules():
        if allowed(path, ENVIRONMENT_IN):
            continue
        for node in nodes(path):
            text = ast.unparse(node) if isinstance(node, ast.Attribute | ast.Name) else ""
            if text in {"os.environ", "environb", "os.getenv", "os.putenv"} or (
                isinstance(node, ast.ImportFrom)
                and node.module == "os"
                and {alias.name for alias in node.names} & {"environ", "getenv"}
            ):
                wrong.append(f"{relative(path)}:{node.lineno} reads the environment")
    assert not wrong, "\n".join(wrong)


def test_the_wall_clock_is_read_in_one_place() -> None:
    wrong = []
    for path in modules():
        if allowed(path, WALL_CLOCK_IN):
            continue
        for node in nodes(path):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                if name.rpartition(".")[2] in {"utcnow", "today"} or name in {"datetime.now", "datetime.datetime.now"}:
                    wrong.append(f"{relative(path)}:{node.lineno} calls {name}")
    assert not wrong, "\n".join(wrong)


def test_nothing_branches_on_the_backend_but_the_runtime() -> None:
    """Every feature works the same on both, so nobody else needs to know."""
    wrong = []
    for path in modules():
        if allowed(path, {"runtime/", "testing/"}):
            continue
        for node in nodes(path):
            if isinstance(node, ast.Compare):
                compared = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
                if compared & {"asyncio", "trio"}:
                    wrong.append(f"{relative(path)}:{node.lineno}: {ast.unparse(node)}")
            elif isinstance(node, ast.Name) and node.id in {"asyncio", "trio"}:
                wrong.append(f"{relative(path)}:{node.lineno} names {node.id}")
    assert not wrong, "\n".join(wrong)


def test_nothing_inside_imports_util_or_testing() -> None:
    wrong = [
        f"{relative(path)}:{line} imports {name}"
        for path in modules()
        if not relative(path).startswith("testing/")
        for line, name in imports(path)
        if name == "proctor.util" or name.startswith(("proctor.util.", "proctor.testing"))
    ]
    assert not wrong, "\n".join(wrong)


def test_the_checks_find_what_they_look_for(tmp_path: Path) -> None:
    """A check of the checks: in a file with every fault each is seen."""
    bad = tmp_path / "bad.py"
    bad.write_text(
        "import random\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import uuid\n"
        "def f():\n    import asyncio.tasks\n    return random.random()\n",
        encoding="utf-8",
    )
    assert {name for _, name in imports_of_text(bad)} == {"random", "typing", "uuid", "asyncio.tasks"}
    assert {name for _, name in imports_of_text(bad, types=False)} == {"random", "typing", "asyncio.tasks"}
    assert not is_seeded_type(bad, 1, "random")
    good = tmp_path / "good.py"
    good.write_text("import random\ndef f(chance: random.Random): ...\n", encoding="utf-8")
    assert is_seeded_type(good, 1, "random")
    assert layer("proctor.model.messages") == layer("proctor.log.records") == 3
    assert layer("proctor.model.actor") == 5


def imports_of_text(path: Path, *, types: bool = True) -> list[tuple[int, str]]:
    return list(imports(path, types=types))
