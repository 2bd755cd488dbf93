"""A provider that an installed package brings is found by its name, and one that is none is told of."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor import registry
from proctor.errors import NotFoundError, UsageError
from proctor.model import get_model
from proctor.model.api import modelapi
from proctor.runtime import open_runtime

MODULE = """
from proctor.model import ModelOutput
from proctor.model.api import ModelAPI, modelapi


@modelapi("plugged")
class PluggedAPI(ModelAPI):
    async def generate(self, input, tools, tool_choice, config):
        return ModelOutput.from_content(self.model_name, "from a package")
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed distribution with an entry point of ours."""
    (tmp_path / "plugged_provider.py").write_text(MODULE)
    about = tmp_path / "plugged_provider-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged-provider\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[proctor]\nplugged = plugged_provider\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry._load_entry_points.cache_clear()
    yield
    registry._load_entry_points.cache_clear()
    registry._table.pop(("modelapi", "plugged"), None)
    sys.modules.pop("plugged_provider", None)


@pytest.mark.usefixtures("package")
async def test_a_package_brings_a_provider() -> None:
    async with open_runtime():
        assert (await get_model("plugged/m").generate("q")).completion == "from a package"


def test_without_the_package_its_provider_is_not_known() -> None:
    with pytest.raises(NotFoundError, match="plugged"):
        get_model("plugged/m")


def test_a_function_may_bring_the_class_late_and_what_is_no_class_is_refused() -> None:
    from proctor.model.providers.mock import MockAPI

    try:
        modelapi("late")(lambda: MockAPI)
        assert get_model("late/m", memoize=False).provider == "late"
        modelapi("wrong")(lambda: int)  # type: ignore[arg-type, return-value]
        with pytest.raises(UsageError, match="no ModelAPI"):
            get_model("wrong/m")
        with pytest.raises(UsageError, match="slash"):
            modelapi("a/b")
    finally:
        registry._table.pop(("modelapi", "late"), None)
        registry._table.pop(("modelapi", "wrong"), None)
