"""The page of models names what the table of vendors names."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor import registry
from proctor.model.providers.vendors import OPENAI_ON_AZURE, TABLE, Vendor

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "models.md").read_text(encoding="utf-8")
UNLISTED = {"fake"}  # for tests


def line_of(name: str) -> str:
    return next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}/"))


@pytest.mark.parametrize("row", [*TABLE.values(), OPENAI_ON_AZURE], ids=lambda row: row.title)
def test_each_vendor_has_its_line_with_its_variables(row: Vendor) -> None:
    line = line_of("openai/azure" if row is OPENAI_ON_AZURE else row.name)
    for variable in (*row.key_vars, *row.url_vars):
        assert f"`{variable}`" in line
    for argument in row.extras:
        assert f"`{argument}`" in PAGE


def test_each_provider_is_on_the_page() -> None:
    for name in {name for kind, name in registry.BUILTIN if kind == "modelapi"} - UNLISTED:
        assert f"`{name}/" in PAGE, name
