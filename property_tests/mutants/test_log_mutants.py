"""Plant a small fault into pools, attachments or the side journal, and see the property named for it find it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import Phase, settings

from proctor.log import attachments, pools, running, sharing

PROPERTIES = Path(__file__).resolve().parents[1] / "logs" / "test_transcript_records.py"
EXAMPLES = 300

RECORD = "test_a_record_gives_back_every_event"
CUT = "test_a_journal_gives_back_every_event_before_the_cut"
LATER = "test_an_event_that_ends_later_is_there_once"

Plant = Callable[[pytest.MonkeyPatch], None]


@attrs.frozen
class Mutant:
    """A fault and the property that finds it."""

    name: str
    caught_by: str
    plant: Plant


MUTANTS: list[Mutant] = []


def mutant(name: str, caught_by: str) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        MUTANTS.append(Mutant(name, caught_by, plant))
        return plant

    return add


@mutant("lists are thought to begin as the last one did", RECORD)
def _(patch: pytest.MonkeyPatch) -> None:
    def known(self: Any, values: list[Any]) -> int:
        return min(len(self._last), len(values))

    patch.setattr(sharing.SharingPool, "_known", known)


@mutant("the log's pool is thought to be in the transcript's order", RECORD)
def _(patch: pytest.MonkeyPatch) -> None:
    def add(self: Any, place: int) -> None:
        self.places.append(place)

    patch.setattr(pools._Mapped, "add", add)


@mutant("texts of one length share a key", RECORD)
def _(patch: pytest.MonkeyPatch) -> None:
    def attached(self: Any, text: str) -> str:
        key = f"{len(text):032}"
        self.texts[key] = text
        return attachments.PREFIX + key

    patch.setattr(attachments.Attachments, "_attached", attached)


@mutant("messages of a pool are journalled again", CUT)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = running.SampleJournal.append

    def append(self: Any, record: Any, events: Any) -> None:
        plain(self, record, events)
        self._written = (0, 0)

    patch.setattr(running.SampleJournal, "append", append)


@mutant("a text that was journalled before is thought to be there", CUT)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = running.SampleJournal._encoded

    def encoded(self: Any, record: Any, events: Any) -> bytes:
        self._attached = _All()
        return plain(self, record, events)

    patch.setattr(running.SampleJournal, "_encoded", encoded)


class _All(set[str]):
    def __contains__(self, key: object) -> bool:
        return True


@mutant("an event that has ended is not journalled again", LATER)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = running.SampleJournal.append

    def append(self: Any, record: Any, events: Any) -> None:
        plain(self, record, events)
        self.open = []

    patch.setattr(running.SampleJournal, "append", append)


def property_named(name: str) -> Any:
    """The property, freshly loaded."""
    spec = importlib.util.spec_from_file_location("log_properties_with_a_mutant", PROPERTIES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    test: Any = getattr(module, name)
    test._hypothesis_internal_use_settings = settings(
        max_examples=EXAMPLES, phases=[Phase.generate], derandomize=True, database=None, deadline=None
    )
    return test


@pytest.mark.parametrize("planted", MUTANTS, ids=lambda each: each.name.replace(" ", "-"))
def test_a_fault_planted_into_logs_is_found(monkeypatch: pytest.MonkeyPatch, planted: Mutant) -> None:
    test = property_named(planted.caught_by)
    planted.plant(monkeypatch)
    with pytest.raises(BaseException) as caught:
        test()
    error = caught.value
    for leaf in error.exceptions if isinstance(error, BaseExceptionGroup) else [error]:
        assert not isinstance(leaf, KeyboardInterrupt | SystemExit | AttributeError | TypeError | NameError), leaf
