"""Every Python block and every command of the documentation runs, and prints what the page says it prints.

The Python blocks of a page run in order in one namespace, in an empty folder. A block that defines ``async def main``
is run, on every backend in virtual time; one with a ``title="x.py"`` is written to that file as well. A ``console``
block holds commands after ``$``, of which those of proctor are run. A ``text`` block right after either holds its
output; times, dates and the names of logs may differ. A page that cannot be run says so with a first line
``<!-- not run: reason -->``, and its reason is shown when the tests are listed with ``-rs``.
"""

from __future__ import annotations

import inspect
import io
import linecache
import logging
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from proctor.cli.app import main as proctor
from proctor.testing import run_virtual

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```(?P<kind>\w+)(?P<info>[^\n]*)\n(?P<code>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r'title="([\w./-]+)"')
NOT_RUN = re.compile(r"\A<!-- not run: (?P<reason>.+?) -->")
BETWEEN = re.compile(r"\s*\Z")
VARYING = (
    (re.compile(r"[\w.:-]+\.eval"), "LOG.eval"),
    (re.compile(r"\[ *\d+s\]"), "[TIME]"),
    (re.compile(r"\b\d+(\.\d+)?s\b"), "TIME"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT[\d:+.-]+"), "DATE"),
    (re.compile(r"--+"), "--"),
    (re.compile(r" +"), " "),
)
"""What two runs of a command say differently, and what stands for it."""


@frozen
class Block:
    """A Python or console block: its code, on which line of the page it begins, and what it prints."""

    code: str
    line: int
    output: str | None
    file: str | None = None
    console: bool = False


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a page that are run, with the output that follows each."""
    found = list(BLOCK.finditer(text))
    for match, following in zip(found, [*found[1:], None][: len(found)], strict=True):
        if match["kind"] not in {"python", "console"}:
            continue
        follows = (
            following is not None
            and following["kind"] == "text"
            and BETWEEN.match(text[match.end() : following.start()]) is not None
        )
        output = following["code"] if following is not None and follows else None
        title = TITLE.search(match["info"])
        line = text.count("\n", 0, match.start("code"))
        yield Block(match["code"], line, output, title[1] if title else None, match["kind"] == "console")


def run_page(path: Path, backend: str) -> int:
    """Run the blocks of one page; returns how many there were."""
    text = path.read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": f"docs_{path.stem}"}
    count = 0
    for count, block in enumerate(blocks(text), 1):
        # As many empty lines as stand above it on the page, so that tracebacks name the page's own lines.
        code = "\n" * block.line + block.code
        name = f"{path}#{count}"
        if block.file is not None:
            Path(block.file).write_text(block.code, encoding="utf-8")
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        namespace.pop("main", None)
        printed = io.StringIO()
        with redirect_stdout(printed):
            if block.console:
                run_commands(block.code)
            else:
                exec(compile(code, name, "exec"), namespace)
            main = namespace.get("main")
            if inspect.iscoroutinefunction(main):
                run_virtual(backend, main)
        if block.output is not None:
            said, expected = printed.getvalue(), block.output
            if said != expected:
                said, expected = steady(said), steady(expected)
            assert said == expected, f"{path}:{block.line}: prints something else than the page says"
    return count


def run_commands(code: str) -> None:
    """Run the commands of proctor in a console block; each must succeed."""
    for line in code.splitlines():
        if not line.startswith("$ proctor "):
            continue
        with redirect_stderr(sys.stdout):
            code_of_exit = proctor(shlex.split(line, comments=True)[2:])
        assert code_of_exit == 0, f"{line} ended with {code_of_exit}"


def steady(text: str) -> str:
    """A text without what differs from run to run."""
    for pattern, replacement in VARYING:
        text = pattern.sub(replacement, text)
    # Whether a run is long enough for a line of progress is a matter of the machine.
    return "\n".join(line.rstrip() for line in text.strip().splitlines() if not line.startswith("[TIME]"))


PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md"]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    """Pages write their files into a folder of their own, and run on the backend of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # loading a task file adds its folder
    monkeypatch.setenv("PROCTOR_ASYNC_BACKEND", backend.partition("-")[0])
    monkeypatch.setenv("PROCTOR_CACHE_DIR", str(tmp_path / ".cache"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_does_what_it_says(path: Path, backend: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    stated = NOT_RUN.match(path.read_text(encoding="utf-8"))
    if stated is not None:
        pytest.skip(stated["reason"])
    run_page(path, backend)


def test_a_wrong_output_is_found(tmp_path: Path, backend: str) -> None:
    page = tmp_path / "page.md"
    page.write_text('# Page\n\n```python\nasync def main():\n    print("this")\n```\n\n```text\nthat\n```\n')
    with pytest.raises(AssertionError, match="prints something else"):
        run_page(page, backend)


def test_a_failing_block_is_named_by_the_line_of_its_page(tmp_path: Path, backend: str) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```python\nx = 1\n```\n\nText.\n\n```python\ny = x / 0\n```\n")
    with pytest.raises(ZeroDivisionError) as caught:
        run_page(page, backend)
    assert caught.traceback[-1].lineno == 9


def test_a_command_that_fails_is_found(tmp_path: Path, backend: str) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```console\n$ proctor eval nothing.py\n```\n")
    with pytest.raises(AssertionError, match=r"nothing\.py ended with 2"):
        run_page(page, backend)


def test_every_link_leads_somewhere() -> None:
    lost = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target and not (page.parent / target).exists():
                lost.append(f"{page.relative_to(ROOT)}: {target}")
    assert not lost, "\n".join(lost)


def test_the_map_names_every_page() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    pages = [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page.name != "index.md"]
    assert [page for page in sorted(pages) if f"]({page})" not in index] == []
