"""The pytest plugin: runs ``async def test_*`` on every backend in virtual time.

It is loaded in every pytest run where proctor is installed, so it imports next to nothing and does nothing unless
the project asks for it::

    [tool.pytest.ini_options]
    proctor_async = true

Then each async test runs once a backend through `run_virtual`, with its deadlock watchdog. One that is marked
``real`` runs in real time. A test marked for another plugin (``anyio``, ``asyncio``, ``trio``) is left to it. The
fixture `backend` gives the name of the backend to any test that wants it, and runs it once for each.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any, Final

import pytest

OTHERS: Final = frozenset({"anyio", "asyncio", "trio"})
BACKENDS: Final = ("asyncio", "asyncio-eager", "trio") if sys.version_info >= (3, 12) else ("asyncio", "trio")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini option that turns the plugin on."""
    parser.addini("proctor_async", "run async tests on every backend in virtual time", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker `real`."""
    config.addinivalue_line("markers", "real: real time, real processes, real sockets")


@pytest.fixture(scope="module", params=BACKENDS)  # Hypothesis refuses a narrower one
def backend(request: pytest.FixtureRequest) -> str:
    """The name of a backend, for `run_virtual`; the test runs once for each."""
    return str(request.param)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, name: str, obj: object) -> None:
    """Give async tests the parameter `backend`."""
    if not collector.config.getini("proctor_async") or not collector.istestfunction(obj, name):
        return
    if inspect.iscoroutinefunction(obj) and not _belongs_to_others(collector, obj):
        pytest.mark.usefixtures("backend")(obj)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test."""
    function = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function) or not pyfuncitem.config.getini("proctor_async"):
        return None
    if any(pyfuncitem.get_closest_marker(other) for other in OTHERS):
        return None
    from proctor.testing.virtual import run_real, run_virtual

    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    chosen = str(pyfuncitem.funcargs["backend"])

    async def test() -> None:
        await function(**arguments)

    if pyfuncitem.get_closest_marker("real") is not None:
        run_real(chosen, test)
    else:
        run_virtual(chosen, test)
    return True


def _belongs_to_others(collector: pytest.Module | pytest.Class, obj: object) -> bool:
    own: Any = getattr(obj, "pytestmark", ())
    return any(mark.name in OTHERS for mark in own) or any(collector.get_closest_marker(other) for other in OTHERS)
