"""The samples of a log that are read when they are first looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from attrs import define, field

from proctor.log.samples import EvalSample


@define(eq=False)
class StoredSamples(Sequence[EvalSample]):
    """The samples in a log's file, in dataset order. They are read, all at once, when one is first asked for.

    So the logs that an evaluation returns have their samples without holding them: a run of a million samples costs
    nothing until somebody looks. Reading blocks; in async code `read_eval_log_async` is the better way.

    Attributes:
        location: of the log.
    """

    location: str
    _read: list[EvalSample] | None = field(default=None, init=False, repr=False)

    @property
    def _samples(self) -> list[EvalSample]:
        if self._read is None:
            from proctor.log.reader import read_eval_log

            self._read = read_eval_log(self.location, resolve_attachments=True).samples or []
        return self._read

    @overload
    def __getitem__(self, index: int) -> EvalSample: ...
    @overload
    def __getitem__(self, index: slice) -> list[EvalSample]: ...
    def __getitem__(self, index: int | slice) -> EvalSample | list[EvalSample]:
        return self._samples[index]

    def __len__(self) -> int:
        return len(self._samples)
