"""Every Python block of the documentation runs, and prints what the page says it prints.

The blocks of a page run in order in one namespace. A block that defines ``async def main`` is run, on every backend in
virtual time; a ``text`` block right after it holds its output. A page that cannot be run says so with a first line
``<!-- not run: reason -->``, and its reason is shown when the tests are listed with ``-rs``.
"""

from __future__ import annotations

import inspect
import io
import linecache
import logging
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from proctor.testing import run_virtual

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"^```(?P<kind>\w+)[^\n]*\n(?P<code>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"\A<!-- not run: (?P<reason>.+?) -->")
BETWEEN = re.compile(r"\s*\Z")


@frozen
class Block:
    """A Python block: its code, on which line of the page it begins, and what it prints."""

    code: str
    line: int
    output: str | None


def blocks(text: str) -> Iterator[Block]:
    """The Python blocks of a page with the output that follows each."""
    found = list(BLOCK.finditer(text))
    for match, following in zip(found, [*found[1:], None], strict=True):
        if match["kind"] != "python":
            continue
        follows = (
            following is not None
            and following["kind"] == "text"
            and BETWEEN.match(text[match.end() : following.start()]) is not None
        )
        output = following["code"] if following is not None and follows else None
        yield Block(match["code"], text.count("\n", 0, match.start("code")), output)


def run_page(path: Path, backend: str) -> int:
    """Run the blocks of one page; returns how many there were."""
    text = path.read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": f"docs_{path.stem}"}
    count = 0
    for count, block in enumerate(blocks(text), 1):
        # As many empty lines as stand above it on the page, so that tracebacks name the page's own lines.
        code = "\n" * block.line + block.code
        name = f"{path}#{count}"
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        namespace.pop("main", None)
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(code, name, "exec"), namespace)
            main = namespace.get("main")
            if inspect.iscoroutinefunction(main):
                run_virtual(backend, main)
        if block.output is not None:
            assert printed.getvalue() == block.output, f"{path}:{block.line}: prints something else than the page says"
    return count


PAGES = sorted(DOCS.rglob("*.md"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
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
