"""The page on Anthropic, Google and Bedrock names every argument that they take, and how their answers end."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from pathlib import Path

from proctor.model.api import provider_class
from proctor.model.config import GENERATE_FIELDS
from proctor.model.providers import anthropic_output, bedrock_output, google_output
from proctor.model.providers.anthropic_request import VERSION
from proctor.model.providers.google import API_VERSION

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "providers.md").read_text(encoding="utf-8")
PROVIDERS = ("anthropic", "google", "bedrock")
COMMON = {"self", "model_name", "base_url", "api_key", "config", "model_args"}


def table(heading: str) -> list[list[str]]:
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def words(cell: str) -> set[str]:
    return set(re.findall(r"`([A-Za-z_]+)`", cell))


def test_every_model_argument_is_on_the_page_and_no_other() -> None:
    taken = {
        (provider, name)
        for provider in PROVIDERS
        for name in set(inspect.signature(provider_class(provider).__init__).parameters) - COMMON
    }
    documented = {
        (provider, name)
        for row in table("Model arguments")
        for provider in (PROVIDERS if row[1] == "all three" else words(row[1]))
        for name in words(row[0])
    }
    assert documented == taken


def test_the_versions_on_the_page_are_those_that_are_asked_for() -> None:
    versions = {row[1].strip("`"): row[2] for row in table("Model arguments") if row[0] == "`api_version`"}
    assert f"`{VERSION}`" in versions["anthropic"]
    assert f"`{API_VERSION}`" in versions["google"]


def test_the_options_on_the_page_are_options() -> None:
    for row in table("What becomes of the configuration"):
        assert words(row[0]) <= set(GENERATE_FIELDS), row[0]


def test_the_ends_of_answers_are_those_of_the_code() -> None:
    known: dict[str, Mapping[str, str]] = {
        "anthropic": anthropic_output.STOP_REASONS,
        "google": google_output.STOP_REASONS,
        "bedrock": bedrock_output.STOP_REASONS,
    }
    ends = {row[0].strip("`"): dict(zip(PROVIDERS, row[1:], strict=True)) for row in table("How an answer ends")[1:]}
    for provider, reasons in known.items():
        for word, reason in reasons.items():
            assert word in words(ends[reason][provider]) or word.startswith(("IMAGE", "MODEL_ARMOR")), (provider, word)
        for reason in ("stop", "max_tokens", "content_filter", "model_length"):
            for word in words(ends[reason][provider]):
                assert reasons[word] == reason, (provider, word)
