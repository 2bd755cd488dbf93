"""From one format of logs to another, a sample at a time: a log larger than memory can be converted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, cast

from attrs import define, evolve

from proctor.errors import LogError
from proctor.log.logfile import SAMPLE, LogFile
from proctor.log.places import Place
from proctor.log.reader import read_eval_log
from proctor.log.records import EvalLog, EvalSample
from proctor.log.resolve import Resolve
from proctor.log.whole import write_log

Kind = Literal["eval", "json"]


@define(eq=False)
class SamplesOf:
    """The samples of a ``.eval`` log, read one at a time whenever they are gone through."""

    file: LogFile
    names: list[str]
    resolve: Resolve

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[EvalSample]:
        for name in self.names:
            yield self.file.sample(name, self.resolve)


def convert_log(path: Place, target: Place, *, resolve_attachments: Resolve = False) -> None:
    """Write a log in the format that the name of `target` says, all at once or not at all.

    Args:
        path: of the log, which stays. resolve_attachments: put attachments back where they belong.

    Raises:
        LogError: it cannot be read or written.
    """
    kind: Kind = "json" if target.suffix == ".json" else "eval"
    if path.suffix == ".json":
        write_log(read_eval_log(path, resolve_attachments=resolve_attachments), target, kind)
        return
    with LogFile.open(path) as file:
        header = file.header()
        samples = SamplesOf(file, _in_order(file, header), resolve_attachments)
        write_log(evolve(header, samples=cast("list[EvalSample]", samples)), target, kind)


def export_json(path: Place) -> Place:
    """Put a log in the JSON format in the place of the one that was written while it ran.

    Returns:
        Its path.

    Raises:
        LogError: it cannot be written; the log stays.
    """
    target = path.with_suffix(".json")
    convert_log(path, target)
    try:
        path.unlink()
    except OSError as error:
        raise LogError(f"{path}: the log was exported to {target}, but cannot be removed: {error.strerror}") from error
    return target


def _in_order(file: LogFile, header: EvalLog) -> list[str]:
    """The names of the samples by epoch and then in dataset order."""
    place = {str(id): number for number, id in enumerate(header.eval.dataset.sample_ids or ())}

    def key(name: str) -> tuple[int, int]:
        match = SAMPLE.fullmatch(name)
        assert match is not None
        return int(match[2]), place.get(match[1], len(place))

    return sorted(file.sample_names(), key=key)
