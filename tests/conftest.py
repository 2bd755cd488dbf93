"""What all tests share."""

from __future__ import annotations

import faulthandler
from pathlib import Path

import pytest

faulthandler.enable()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of data and tools beside the project."""
    path = Path(__file__).resolve().parents[1].parent / "shared"
    if not path.is_dir():
        pytest.skip(f"needs the folder of data and tools beside the project, absent here: {path}")
    return path
