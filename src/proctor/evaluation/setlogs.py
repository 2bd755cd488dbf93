"""The logs of a set in its folder: which of them belongs to which run, and which are in the way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio
from attrs import define, evolve, field

from proctor.errors import LogError, UsageError
from proctor.evaluation.again import OldLog, not_reused, open_old, own_spec, remove
from proctor.evaluation.feed import Feed, Planned, budget_of
from proctor.evaluation.fingerprint import differences
from proctor.evaluation.header import eval_plan
from proctor.evaluation.plan import PlannedRun
from proctor.evaluation.results import Scores
from proctor.evaluation.resume import Resume, Reused
from proctor.log.adopt import IN_USE, can_go_on
from proctor.log.listing import EvalLogInfo, find_logs
from proctor.log.places import Place, place_of, working_path
from proctor.log.reader import read_eval_log
from proctor.log.records import EvalLog
from proctor.runtime import Runtime

SHOWN: Final = 3


@define
class SetLogs:
    """What a folder holds.

    Attributes:
        own: the newest log that each run may go on in, by the run's index.
        others: logs of the same tasks and models that none goes on in, by the index of a run they could be of.
        notes: why a run begins a new log though there is one of its task and model, by the run's index.
        unrelated: logs of other tasks or models.
    """

    own: dict[int, Place] = field(factory=dict)
    others: dict[int, list[Place]] = field(factory=dict)
    notes: dict[int, str] = field(factory=dict)
    unrelated: list[Place] = field(factory=list)
    eval_set_id: str | None = None

    @classmethod
    def find(cls, folder: str, plan: Sequence[PlannedRun]) -> SetLogs:
        """Look into a folder; it blocks."""
        made = cls()
        listed = [place_of(info.name) for info in _listed(folder) if not (info.suffix or "").startswith("-scored")]
        found = [(path, header) for path in listed if (header := _header(path))]
        claimed: set[Place] = set()
        for run in plan:
            spec, steps = own_spec(run), eval_plan(run)
            alike = [(path, log) for path, log in found if (log.eval.task, log.eval.model) == (spec.task, spec.model)]
            fits = [path for path, log in alike if path not in claimed and not differences(log, spec, steps)]
            if fits:
                made.own[run.index] = fits[0]
                claimed.add(fits[0])
            elif alike:
                path, log = alike[0]
                made.notes[run.index] = not_reused(path, differences(log, spec, steps))
            made.others[run.index] = [path for path, _ in alike]
        for index, paths in made.others.items():
            made.others[index] = [path for path in paths if path not in claimed]
        known = {path for paths in made.others.values() for path in paths} | claimed
        made.unrelated = [path for path, _ in found if path not in known]
        ids = [log.eval.eval_set_id for path, log in found if path in claimed and log.eval.eval_set_id]
        made.eval_set_id = ids[0] if ids else None
        return made

    def refuse_unrelated(self, folder: str) -> None:
        """See that nothing else is in the folder.

        Raises:
            UsageError: there is.
        """
        if self.unrelated:
            names = ", ".join(path.name for path in self.unrelated[:SHOWN]) + ", …" * (len(self.unrelated) > SHOWN)
            raise UsageError(
                f"log_dir {folder} holds logs of other tasks or models ({names}): a set has a folder of its own; name "
                "another, or allow it with --log-dir-allow-dirty (log_dir_allow_dirty=True)"
            )

    def clean(self, index: int, keep: str) -> None:
        """Remove the logs that a run's log took the place of; it blocks."""
        for path in self.others.pop(index, []):
            if path != place_of(keep).absolute():
                remove(path)


def _listed(folder: str) -> list[EvalLogInfo]:
    try:
        return list(find_logs(folder, formats=None, recursive=False, descending=True))
    except OSError:
        return []


def _header(path: Place) -> EvalLog | None:
    try:
        return read_eval_log(path, header_only=True)
    except LogError:
        pass
    try:  # a crash in the middle of a commit: mended, it can be read
        return open_old(path).header
    except LogError:
        return None


def peek(path: Place) -> OldLog | None:
    """A log as it is, neither mended nor copied; None when it cannot be read as it is. It blocks."""
    try:
        header = read_eval_log(path, header_only=True)
    except LogError:
        return None
    return OldLog(source=path, path=path, file=path, header=evolve(header, reductions=None))


def refuse_in_use(path: Place) -> None:
    """See that no other process works on a log of the set. It blocks.

    Raises:
        UsageError: one does.
    """
    file = path if isinstance(path, Path) else working_path(path)
    if path.suffix != ".json" and file.exists() and can_go_on(file) == IN_USE:
        raise UsageError(f"{path}: another process works on this set; wait until it has ended, or give another log_dir")


async def is_complete(run: PlannedRun, resume: Resume, runtime: Runtime) -> bool:
    """Whether a log that is a success has every sample that the run asks for, and no other; nothing is written."""
    epochs = run.options.epochs.epochs if run.options.epochs else 1
    reused = Reused(resume, Scores({}, None, None, epochs))
    feed = Feed(run.task.dataset, run.options, epochs, budget_of(run.options), runtime.to_thread, lambda _: None)
    feed.skips = lambda sample, _, epoch: reused.look(sample, epoch) not in {"missing", "changed", "limit", "cancelled"}
    try:
        await feed.open()
        await runtime.to_thread(reused.load)
        return not await _sends(feed) and not reused.left
    finally:
        with anyio.CancelScope(shield=True):
            await feed.close()


async def _sends(feed: Feed) -> bool:
    send, receive = anyio.create_memory_object_stream[Planned](0)
    found = False
    async with anyio.create_task_group() as group:
        group.start_soon(feed.send, send)
        with receive:
            async for _ in receive:
                found = True
                group.cancel_scope.cancel()
                break
    return found
