"""The pages of reference say what is so: flags, commands, variables. Run as a script it rewrites them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from proctor.cli.app import SUMMARIES
from proctor.runtime.options import OPTIONS, Option

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
MARKS = ("<!-- flags: written by tests/docs/test_reference.py -->\n", "<!-- end of flags -->")


def written(option: Option) -> str:
    if option.form == "switch":
        return f"--[no-]{option.name}"
    return f"{option.flag} {option.metavar}".rstrip()


def escaped(text: str) -> str:
    return text.replace("|", "\\|")


def flags() -> str:
    """The tables of flags, one a group."""
    lines: list[str] = []
    group = ""
    for option in OPTIONS:
        if option.group != group:
            group = option.group
            lines += ["", f"### {group}", "", "| flag | what it says |", "|---|---|"]
        lines.append(f"| `{escaped(written(option))}` | {escaped(option.help)} |")
    return "\n".join(lines).strip() + "\n"


def with_flags(page: str) -> str:
    """The page with the tables as they should be."""
    before, _, rest = page.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return f"{before}{MARKS[0]}\n{flags()}\n{MARKS[1]}{after}"


def test_the_page_of_flags_is_that_of_the_table() -> None:
    page = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    assert page == with_flags(page), "options have changed: python tests/docs/test_reference.py rewrites the page"


def test_every_command_is_described() -> None:
    page = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    assert [name for name in SUMMARIES if f"## `proctor {name}" not in page] == []


def test_every_variable_that_the_options_have_is_described() -> None:
    page = (REFERENCE / "environment.md").read_text(encoding="utf-8")
    named = {name for option in OPTIONS for name in option.variables}
    assert sorted(name for name in named if name not in page) == []


def test_no_variable_is_described_that_nothing_reads() -> None:
    page = (REFERENCE / "environment.md").read_text(encoding="utf-8")
    source = "\n".join(
        path.read_text(encoding="utf-8") for path in (REFERENCE.parents[1] / "src" / "proctor").rglob("*.py")
    )
    options = {f"{prefix}_{option.key.upper()}" for option in OPTIONS for prefix in ("PROCTOR_EVAL", "INSPECT_EVAL")}
    described = set(re.findall(r"`((?:PROCTOR|INSPECT)_[A-Z_]*[A-Z])`", page))
    assert sorted(name for name in described if name not in options and name not in source) == []


if __name__ == "__main__":
    path = REFERENCE / "cli.md"
    path.write_text(with_flags(path.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"{path} is rewritten\n")
