"""Plant a small fault into the sandboxes of the engine, and see the property that is named for it find it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import Phase, settings

from proctor.evaluation import sandboxing, taskrun
from proctor.sandbox import pool, sample, task

PLANS = Path(__file__).resolve().parents[1] / "plans" / "test_sandbox_plans.py"
EXAMPLES = 80

Plant = Callable[[pytest.MonkeyPatch], None]

LIMITS = "test_sandboxes_never_pass_their_limits_and_none_is_left"
AT_A_TIME = "test_cancelled_at_any_time_none_is_left_and_it_ends_within_the_budget"
AT_AN_AWAIT = "test_cancelled_at_any_await_none_is_left"


@attrs.frozen
class Mutant:
    """A fault and the property that finds it."""

    name: str
    caught_by: str
    plant: Plant


MUTANTS: list[Mutant] = []


def mutant(name: str, caught_by: str) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        MUTANTS.append(Mutant(name, caught_by, plant))
        return plant

    return add


@mutant("a sample takes no place of a sandbox", LIMITS)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(task.Want, "lease", lambda self, group, outer=None: None)


@mutant("the limit of sandboxes is not followed", LIMITS)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = pool.SandboxPool.create

    async def create(self: Any, ticket: Any) -> None:
        self.estate.limiter.resize(None)
        await plain(self, ticket)

    patch.setattr(pool.SandboxPool, "create", create)


@mutant("starts are not bounded", LIMITS)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = pool.SandboxPool.create

    async def create(self: Any, ticket: Any) -> None:
        self.estate.starts.resize(None)
        await plain(self, ticket)

    patch.setattr(pool.SandboxPool, "create", create)


@mutant("a removal can be cancelled", AT_A_TIME)
@mutant("a removal can be cancelled at some await", AT_AN_AWAIT)
def _(patch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def unshielded() -> Iterator[anyio.CancelScope]:
        with anyio.CancelScope() as scope:
            yield scope

    patch.setattr(sandboxing, "bounded_by", lambda ending: unshielded)
    patch.setattr(taskrun, "bounded_by", lambda ending: unshielded)


@mutant("a removal may take as long as it likes", AT_A_TIME)
def _(patch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def unbounded() -> Iterator[anyio.CancelScope]:
        with anyio.CancelScope(shield=True) as scope:
            yield scope

    patch.setattr(sandboxing, "bounded_by", lambda ending: unbounded)
    plain = pool.remove

    async def slow(estate: Any, ticket: Any, *, interrupted: bool) -> None:
        await anyio.sleep(20)
        await plain(estate, ticket, interrupted=interrupted)

    patch.setattr(pool, "remove", slow)


@mutant("what was made is written down one await later", AT_AN_AWAIT)
@mutant("what was made is written down one await later, cancelled at a time", AT_A_TIME)
def _(patch: pytest.MonkeyPatch) -> None:
    async def create(self: Any, ticket: Any) -> None:
        made = await ticket.provider.sample_init(ticket.task_name, ticket.config, dict(ticket.metadata))
        await ticket.config.counted(later())
        self.estate.received(ticket, made)

    async def later() -> None:
        await checkpoint()
        await anyio.sleep(1)

    patch.setattr(pool.PoolState, "_create", create)


@mutant("only failures remove what was made, not cancellations", AT_AN_AWAIT)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = sample.SandboxSample.__aexit__

    async def leaves(self: Any, kind: Any, error: Any, traceback: Any) -> Any:
        if error is not None and not isinstance(error, Exception):
            self._ticket = None
        return await plain(self, kind, error, traceback)

    patch.setattr(sample.SandboxSample, "__aexit__", leaves)


@mutant("a sample whose sandbox died may still succeed", LIMITS)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sample.SandboxSample, "lost", property(lambda self: None))


@mutant("a failed sample is run again in its old sandbox's place without its removal", LIMITS)
def _(patch: pytest.MonkeyPatch) -> None:
    async def keeps(self: Any, *, interrupted: bool) -> None:
        if not interrupted and self._ticket is not None:
            await self.want.pool.destroy(self._ticket, interrupted=False)

    patch.setattr(sample.SandboxSample, "_remove", keeps)


def property_named(name: str) -> Any:
    """The property, freshly loaded."""
    spec = importlib.util.spec_from_file_location("sandbox_plans_with_a_mutant", PLANS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    test: Any = getattr(module, name)
    test._hypothesis_internal_use_settings = settings(  # a test may not be decorated with settings twice
        max_examples=EXAMPLES, phases=[Phase.generate], derandomize=True, database=None, deadline=None
    )
    return test


@pytest.mark.parametrize("planted", MUTANTS, ids=lambda each: each.name.replace(" ", "-"))
def test_a_planted_fault_is_found(backend: str, monkeypatch: pytest.MonkeyPatch, planted: Mutant) -> None:
    test = property_named(planted.caught_by)
    planted.plant(monkeypatch)
    with pytest.raises(BaseException) as caught:
        test(backend=backend)
    for leaf in leaves(caught.value):  # a fault that does not fit the engine any more proves nothing
        assert not isinstance(leaf, KeyboardInterrupt | SystemExit | AttributeError | TypeError | NameError), leaf


def leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in leaves(each)]
    return [error]
