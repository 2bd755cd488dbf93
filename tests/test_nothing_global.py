"""Structure is the only lifetime: no module holds mutable state, and runs do not see each other."""

from __future__ import annotations

import ast
import collections
import contextvars
import functools
import importlib
import logging
import pkgutil
import re
import types
import typing
from collections.abc import Iterator
from typing import Any

import anyio
import attrs
import pytest

import proctor
from proctor.testing import run_virtual

SKIPPED = {"proctor.__main__"}
"""Modules that run when they are imported."""

ALLOWED = {
    "proctor.registry": {"_table"},  # what decorators register: the one module-level table
    "proctor.testing.plugin": {"backend"},  # a pytest fixture, which pytest looks for in the module
}
TYPE_CACHES = {"SHAPERS"}
"""What is computed once a type: the log's encoders."""

CONSTANT = (
    int, float, complex, str, bytes, bool, type(None), type(...), type, types.ModuleType, types.FunctionType,
    types.BuiltinFunctionType, types.MappingProxyType, types.GenericAlias, types.UnionType, re.Pattern, range,
    contextvars.ContextVar, logging.Logger, typing.TypeVar, typing.ParamSpec, typing.TypeVarTuple, typing.NewType,
    types.WrapperDescriptorType, types.MethodDescriptorType, staticmethod, property,
)  # fmt: skip


def all_modules() -> list[str]:
    found = [proctor.__name__]
    found += [info.name for info in pkgutil.walk_packages(proctor.__path__, "proctor.")]
    return [name for name in found if name not in SKIPPED]


def importable(name: str) -> types.ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        if missing and missing != "proctor":
            pytest.skip(f"{name} needs {missing}, which is not installed")
        raise


def is_constant(value: Any) -> bool:
    """Whether a value cannot change: immutable all the way down, or one of the kinds that are allowed."""
    if isinstance(value, tuple | frozenset):
        return all(is_constant(each) for each in value)
    if isinstance(value, types.MappingProxyType):
        return all(is_constant(each) for each in value.values())
    if isinstance(value, CONSTANT) or callable_is_constant(value):
        return True
    if type(value).__module__ in {"typing", "typing_extensions", "enum", "__future__"} or isinstance(
        type(value), type(typing.Protocol)
    ):
        return True
    if attrs.has(type(value)):
        frozen = type(value).__setattr__ is not object.__setattr__
        return frozen and all(is_constant(getattr(value, each.name)) for each in attrs.fields(type(value)))
    return False


def callable_is_constant(value: Any) -> bool:
    """Functions, methods, and functions that cache what they computed from types and constants."""
    if isinstance(value, functools._lru_cache_wrapper):
        return True
    if isinstance(value, functools.partial):
        return is_constant(value.func) and all(map(is_constant, (*value.args, *value.keywords.values())))
    return isinstance(value, types.MethodType | type(functools.singledispatch(lambda _: None)))


@functools.cache
def source_of(name: str) -> list[ast.AST]:
    file = importable(name).__file__
    assert file is not None
    with open(file, encoding="utf-8") as source:
        return list(ast.walk(ast.parse(source.read())))


def assigned_mapping_constants(module: types.ModuleType) -> set[str]:
    """Dicts, lists and sets in capitals that no statement of the module changes: constant mappings."""
    changed = set(changed_names(source_of(module.__name__)))
    return {name for name in vars(module) if name.strip("_").isupper() and name not in changed}


MUTATORS = {
    "add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update",
    "appendleft", "popleft", "sort", "reverse",
}  # fmt: skip


def changed_names(nodes: list[ast.AST]) -> Iterator[str]:
    """Names whose value some statement changes in place, or that a function declares global."""
    for node in nodes:
        if isinstance(node, ast.Global):
            yield from node.names
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            yield ast.unparse(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
            yield ast.unparse(node.func.value)
        elif isinstance(node, ast.AugAssign):
            yield ast.unparse(node.target)


@pytest.mark.parametrize("name", all_modules())
def test_a_module_holds_no_mutable_state(name: str) -> None:
    module = importable(name)
    constants = assigned_mapping_constants(module)
    found = []
    for attribute, value in vars(module).items():
        if attribute.startswith("__") or attribute in ALLOWED.get(name, set()) | TYPE_CACHES:
            continue
        if is_constant(value) or attribute in constants:
            continue
        if getattr(value, "__module__", name) != name and not isinstance(value, dict | list | set):
            continue  # an object of another module that is only imported here is judged there
        found.append(f"{attribute} = {value!r:.100}")
    assert not found, "\n".join(found)


def test_no_function_changes_a_global_name() -> None:
    found = []
    for name in all_modules():
        found += [f"{name}:{node.lineno}" for node in source_of(name) if isinstance(node, ast.Global)]
    assert not found, "\n".join(found)


def test_the_check_finds_mutable_state() -> None:
    """A check of the check."""
    assert is_constant((1, "a", frozenset({2}), None, types.MappingProxyType({"a": (1,)})))
    for value in ([], {}, set(), collections.deque(), ([],), anyio.Event, attrs.make_class("C", ["x"])([])):
        assert is_constant(value) == isinstance(value, type)
    tree = ast.parse("A = {}\nB = {}\ndef f():\n    A['x'] = 1\n    C.append(1)\n    global D\n")
    assert set(changed_names(list(ast.walk(tree)))) == {"A", "C", "D"}


def test_five_runs_in_one_process_alternating_backends() -> None:
    """Limiters, actors and all: nothing of one run is bound to its loop and met by the next."""
    from proctor.testing.plan import Client, Plan
    from proctor.testing.stage import play

    plan = Plan(limits=(1, 2), clients=tuple(Client(chain=(n % 2,), delay=n % 3, hold=2) for n in range(6)))
    seen: dict[str, list[Any]] = {}
    for backend in ("asyncio", "trio", "asyncio", "trio", "asyncio"):
        played = play(plan, backend)
        assert {outcome.status for outcome in played.outcomes} == {"done"}
        seen.setdefault(backend, []).append(played.events)
    for runs in seen.values():
        assert all(events == runs[0] for events in runs)


async def test_two_runtimes_in_one_loop_do_not_see_each_other(backend: str) -> None:
    from proctor.runtime import Settings, current_runtime, open_runtime
    from proctor.runtime.scopes import concurrency

    seen: dict[str, Any] = {}

    async def one(name: str, seed: int) -> None:
        async with open_runtime(Settings.resolve(seed=seed)) as runtime:
            await anyio.sleep(1)
            assert current_runtime() is runtime
            async with concurrency("shared name", 1):
                seen[name] = runtime
                await anyio.sleep(1)
                assert anyio.current_time() == 2  # with a limit of one, the two would wait for each other
        assert current_runtime() is None

    async with anyio.create_task_group() as tg:
        tg.start_soon(one, "a", 1)
        tg.start_soon(one, "b", 2)
    assert seen["a"] is not seen["b"]
    assert seen["a"].ledger is not seen["b"].ledger


def test_five_runtimes_in_one_process_alternating_backends() -> None:
    from proctor.runtime import open_runtime
    from proctor.runtime.scopes import concurrency

    async def main() -> int:
        async with open_runtime() as runtime, concurrency("scope", 1):
            return len(runtime.limiters())

    counts = [run_virtual(backend, main) for backend in ("asyncio", "trio", "asyncio", "trio", "asyncio")]
    assert len(set(counts)) == 1
