"""What a run that goes on in a log takes over from it: which samples are reused, and why the others are not.

A sample of the log is reused when it ended there in order (or at a limit that is still the same) and when the dataset
still has it under its id with the same content. All that is needed for that is in the log's index. Scores of reused
samples go where those of new ones go, so that results come out in dataset order, whenever a sample ran.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, TypeAlias

from attrs import define, evolve, field, frozen

from proctor.evaluation.results import Place, Scores
from proctor.log.build import build
from proctor.log.digests import sample_digest, thin_sample_digest
from proctor.log.index import Indexed
from proctor.log.places import Place as LogPlace
from proctor.log.records import EvalLog, EvalSample, EvalSpec
from proctor.model import ModelUsage

Key: TypeAlias = tuple[str, int]
ReadSample: TypeAlias = Callable[[int | str, int], EvalSample]
"""Gives the record of a sample by its id and epoch."""

AT_ONCE: Final = 64
"""Records that are read in one go when the index was not enough."""

SHOWN_IDS: Final = 3
REASONS: Final = {
    "missing": "missing",
    "cancelled": "cancelled",
    "failed": "failed",
    "invalidated": "invalidated",
    "limit": "ended by a limit that is another now",
    "changed": "changed in the dataset",
}
"""Why a sample is run again, in words that follow "…, N "."""


@frozen(kw_only=True)
class Resume:
    """A log to go on in.

    Attributes:
        path: of the log. header: without samples.
        limits: kinds of limits; a sample that one of them ended is run again.
        index: reads what the log says of its samples; it blocks. samples: opens it to read some of them; so does that.
    """

    path: LogPlace
    header: EvalLog
    limits: frozenset[str] = frozenset()
    index: Callable[[], Iterable[Indexed]] = field(repr=False)
    samples: Callable[[], AbstractContextManager[ReadSample]] = field(repr=False)

    def spec(self, new: EvalSpec) -> EvalSpec:
        """The specification of the run as the log goes on to say it: what it is called stays."""
        old = self.header.eval
        kept = ("eval_set_id", "eval_id", "run_id", "task_id", "created", "tags", "metadata", "task_file", "revision")
        return evolve(new, **{name: value for name in kept if (value := getattr(old, name)) is not None})


@frozen
class _Entry:
    digest: str
    thin: bool
    row: int
    names: tuple[str, ...]
    cut: bool


@define(eq=False)
class Reused:
    """The samples of one run that its log has already.

    Attributes:
        usage, role_usage: of all that is done in the log.
        count: reused so far; again: why samples run that are not, with how many.
    """

    resume: Resume
    scores: Scores
    usage: dict[str, ModelUsage] = field(factory=dict, init=False)
    role_usage: dict[str, ModelUsage] = field(factory=dict, init=False)
    count: int = field(default=0, init=False)
    again: Counter[str] = field(factory=Counter, init=False)
    _entries: dict[Key, _Entry | str] = field(factory=dict, init=False)
    """What is done, and of what is not the reason."""
    _changed: list[str] = field(factory=list, init=False)
    _cut: list[tuple[Place, int | str]] = field(factory=list, init=False)
    _names: dict[tuple[str, ...], tuple[str, ...]] = field(factory=dict, init=False)

    def load(self) -> None:
        """Read the index; it blocks, so call it in a thread."""
        used: dict[str, dict[str, Any]] = {}
        by_role: dict[str, dict[str, Any]] = {}
        for item in self.resume.index():
            key = (str(item.id), item.epoch)
            if item.state != "done":
                self._entries[key] = item.state
            elif item.limit is not None and item.limit in self.resume.limits:
                self._entries[key] = "limit"
            else:
                self._entries[key] = self._entry(item)
                _add(used, item.usage)
                _add(by_role, item.role_usage)
        if self.resume.header.invalidated:
            self._find_invalidated()
        self.usage = {name: build(counts, ModelUsage) for name, counts in used.items()}
        self.role_usage = {name: build(counts, ModelUsage) for name, counts in by_role.items()}

    def _entry(self, item: Indexed) -> _Entry:
        scores = {name: _slim(value) for name, value in item.scores.items()}
        row, names = self.scores.keep_slim(item.id, scores, item.metadata)
        digest = item.digest or item.thin or ""
        return _Entry(digest, item.digest is None, row, self._names.setdefault(names, names), item.cut)

    def takes(self, sample: Any, index: int, epoch: int) -> bool:
        """Whether a sample of the dataset is reused; it has its place in the results then.

        Args:
            sample: of the dataset. index: its place among those that run, from 0.
        """
        found = self.look(sample, epoch)
        if isinstance(found, str):
            self.again[found] += 1
            if found == "changed":
                self._changed.append(str(sample.id))
            return False
        self.count += 1
        if found.cut:
            self._cut.append(((index, epoch), sample.id))
        else:
            self.scores.place((index, epoch), found.row, found.names)
        return True

    def look(self, sample: Any, epoch: int) -> _Entry | str:
        """What there is of a sample in the log, or why it must run; it is not found again."""
        found = self._entries.pop((str(sample.id), epoch), "missing")
        if isinstance(found, str):
            return found
        digest = thin_sample_digest(sample) if found.thin else sample_digest(sample)
        return found if digest == found.digest else "changed"

    def _find_invalidated(self) -> None:
        """Only the records say which samples were invalidated."""
        with self.resume.samples() as read:
            for (id, epoch), entry in self._entries.items():
                if not isinstance(entry, str) and read(id, epoch).invalidation is not None:
                    self._entries[id, epoch] = "invalidated"

    def completing(self) -> Generator[None]:
        """Read the scores that the index holds in part only, some at each step; a step blocks."""
        cut, self._cut = self._cut, []
        if not cut:
            return
        with self.resume.samples() as read:
            for number, (place, id) in enumerate(cut, 1):
                record = read(id, place[1])
                self.scores.add(place, record.id, record.scores, record.metadata)
                if number % AT_ONCE == 0:
                    yield

    @property
    def left(self) -> list[Key]:
        """The samples of the log that nobody has asked for."""
        return list(self._entries)

    def begun(self) -> str:
        """What to say before the first sample runs."""
        states = Counter(entry if isinstance(entry, str) else "done" for entry in self._entries.values())
        done = states.pop("done", 0)
        text = f"goes on in {self.resume.path}: {done:,} of its samples are done and will be reused"
        return text + _listed("; run again: ", states)

    def ended(self) -> str:
        """What to say when every sample of the dataset was looked at."""
        text = f"{self.count:,} samples reused without a request" + _listed("; run: ", self.again)
        if self._changed:
            some = ", ".join(self._changed[:SHOWN_IDS]) + (", …" if len(self._changed) > SHOWN_IDS else "")
            text += f" (changed: {some})"
        if self._entries:
            some = ", ".join(f"{id} (epoch {epoch})" for id, epoch in list(self._entries)[:SHOWN_IDS])
            text += f"; {len(self._entries):,} of the log left out: nothing in the dataset, limit or epochs asks for "
            text += f"them now ({some}{', …' if len(self._entries) > SHOWN_IDS else ''})"
        return text


def _listed(before: str, reasons: Mapping[str, int]) -> str:
    found = [f"{reasons[name]:,} {words}" for name, words in REASONS.items() if reasons.get(name)]
    return before + ", ".join(found) if found else ""


def _slim(score: Any) -> tuple[Any, ...]:
    if not isinstance(score, dict):
        return score, None, None
    value = score.get("value")
    return math.nan if value is None else value, score.get("answer"), score.get("metadata")


def _add(total: dict[str, dict[str, Any]], used: Mapping[str, Mapping[str, Any]]) -> None:
    for name, counts in used.items():
        sums = total.setdefault(name, {})
        for kind, count in counts.items():
            sums[kind] = sums.get(kind, 0) + (count or 0)
