"""The pytest plugin, in pytest runs of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BACKENDS = 3 if sys.version_info >= (3, 12) else 2

TESTS = """
import anyio
import pytest
import time

async def test_virtual():
    await anyio.sleep(1000)
    assert anyio.current_time() == 1000

async def test_fixtures_and_parameters(tmp_path, number, backend):
    assert tmp_path.is_dir() and number in (1, 2) and backend

test_fixtures_and_parameters = pytest.mark.parametrize("number", [1, 2])(test_fixtures_and_parameters)

class TestInAClass:
    async def test_method(self):
        assert anyio.current_time() == 0

def test_sync(backend):
    assert backend in ("asyncio", "asyncio-eager", "trio")

def test_plain():
    pass

@pytest.mark.real
async def test_real():
    before = time.monotonic()
    await anyio.sleep(0.01)
    assert time.monotonic() - before >= 0.009
"""

FAILING = """
import anyio

async def test_hangs():
    await anyio.Event().wait()

async def test_fails():
    assert anyio.current_time() == 1
"""


def run_pytest(folder: Path, text: str, *, ini: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_inner.py").write_text(text, encoding="utf-8")
    (folder / "pytest.ini").write_text(f"[pytest]\n{ini}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:anyio", "-W", "error"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.real
def test_async_tests_run_once_a_backend(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, TESTS, ini="proctor_async = true")
    # virtual, two parameters, method, sync and real on each backend; the plain one once
    assert f"{6 * BACKENDS + 1} passed" in done.stdout, done.stdout


@pytest.mark.real
def test_without_the_option_async_tests_are_left_to_others(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, TESTS, ini="")
    assert "async def functions are not natively supported" in done.stdout, done.stdout
    assert f"{BACKENDS + 1} passed" in done.stdout, done.stdout


@pytest.mark.real
def test_a_test_that_hangs_fails_with_the_place_where_it_waits(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, FAILING, ini="proctor_async = true")
    assert f"{2 * BACKENDS} failed" in done.stdout, done.stdout
    assert "VirtualDeadlock" in done.stdout
    assert "test_inner.py:5 in test_hangs" in done.stdout


@pytest.mark.real
def test_loading_the_plugin_imports_next_to_nothing() -> None:
    code = (
        "import sys; import pytest; before = set(sys.modules); import proctor.testing.plugin; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    new = set(done.stdout.split())
    assert {name for name in new if name.startswith("proctor")} == {
        "proctor",
        "proctor.testing",
        "proctor.testing.plugin",
    }
    assert not new & {"anyio", "trio", "hypothesis", "attrs", "httpx"}


@pytest.mark.real
@pytest.mark.parametrize("module", ["proctor.testing", "proctor.testing.virtual", "proctor.testing.stage"])
def test_the_tools_need_neither_pytest_nor_hypothesis(module: str) -> None:
    code = f"import sys; import {module}; print(*[name for name in ('pytest', 'hypothesis') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
