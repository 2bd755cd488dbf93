"""The pages on limits and variables name what there is, and leave nothing out."""

from __future__ import annotations

import re
from pathlib import Path

import attrs

from proctor.evaluation.report import plan_report
from proctor.model import GenerateConfig
from proctor.runtime.options import OPTIONS
from proctor.runtime.options.table import ROWS

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
PARAMETERS = {option.parameter for option in OPTIONS}


def rows(page: str) -> list[list[str]]:
    text = (REFERENCE / page).read_text(encoding="utf-8")
    table = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in row] for row in table]


def names(cell: str) -> list[str]:
    return re.findall(r"`([a-z_]+)`", cell)


def test_every_limit_that_a_plan_shows_is_on_the_page_and_no_other() -> None:
    from proctor import Task
    from proctor.dataset import Sample

    found = plan_report(Task([Sample("x")]), model="mock/m")
    shown = {limit.name for limit in [*found.limits, *found.runs[0].limits]}
    # What is asked of a model is no limit of the run, and the loop is none at all.
    shown -= {"async_backend", "epochs", "max_tokens"}
    documented = {name for row in rows("limits.md") for name in names(row[0])}
    assert documented - shown == set()
    assert shown - documented == set()


def test_every_limit_on_the_page_has_a_flag() -> None:
    for row in rows("limits.md"):
        for name in names(row[0]):
            assert name in PARAMETERS, name


def test_the_defaults_on_the_page_are_those_in_force() -> None:
    from proctor import Task
    from proctor.dataset import Sample

    found = plan_report(Task([Sample("x")]), model="mock/m")
    in_force = {limit.name: limit.value for limit in found.runs[0].limits}
    for row in rows("limits.md"):
        for name in names(row[0]):
            if name in in_force and re.fullmatch(r"[0-9]+", row[1]):
                assert in_force[name] == int(row[1]), name
            if row[1] == "none":
                assert in_force.get(name) is None, name
    assert in_force["max_connections"] == 10
    assert in_force["max_samples"] == 11


def test_every_further_variable_is_on_the_page() -> None:
    documented = {row[0].strip("`"): re.findall(r"`([A-Z_]+)`", row[1]) for row in rows("environment.md")}
    for option in ROWS:
        if option.variables:
            assert documented[option.parameter] == list(option.variables)


def test_the_flags_in_the_examples_of_variables_exist() -> None:
    fields = {a.name for a in attrs.fields(GenerateConfig)}
    assert {"temperature", "max_connections"} <= fields
    known = {option.flag for option in OPTIONS} | {f"--no-{o.name}" for o in OPTIONS if o.form == "switch"}
    for row in rows("environment.md"):
        if row[0].startswith("`-"):
            assert row[0].strip("`").split()[0] in known
            assert row[1].startswith("`PROCTOR_EVAL_")
            assert row[2] == row[1].replace("PROCTOR", "INSPECT")
