"""``replay/<log or file>``: answers recorded earlier, given again by sample, epoch and order of call.

Of a log the calls of its model are played: those of the sample's events that no other role and model made. A file of
JSON lines has one answer a line: ``{"id": 1, "epoch": 1, "output": "text"}``, with an output as a text or as a log has
it; without an epoch for any, without an id for calls in their order, whoever makes them.

It is here and not among the other providers because it reads logs, which know of models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import anyio.lowlevel
from attrs import define, field

from proctor.errors import LogError, ModelError, NotFoundError, UsageError
from proctor.log.encode import decode, encode
from proctor.log.events import ModelEvent
from proctor.log.reader import read_eval_log_async, read_eval_log_sample_async
from proctor.log.records import EvalSample
from proctor.log.threads import in_thread
from proctor.model.api import ModelAPI, refuse_unknown
from proctor.model.config import GenerateConfig
from proctor.model.messages import ChatMessage
from proctor.model.output import ModelCall, ModelOutput
from proctor.model.toolcall import ToolChoice, ToolInfo
from proctor.runtime import SampleContext, current_sample

Key: TypeAlias = tuple[str, int | None]  # id as text, epoch

LOGS: Final = (".eval", ".json")
AT_ONCE: Final = 100  # calls in flight: nothing is scarce here but file handles


@define(eq=False)
class _Answers:
    """What a sample, or the file as a whole, was answered."""

    outputs: list[Any] = field(factory=list)

    def at(self, number: int, what: str) -> ModelOutput:
        """An output of its own for each call."""
        if number >= len(self.outputs):
            raise ModelError(f"replay: {what} has {len(self.outputs)} recorded answers; call {number + 1} has none")
        return ModelOutput.model_validate(decode(self.outputs[number]))


class ReplayAPI(ModelAPI):
    """A model that says what it said before.

    Args:
        model_name: the path of a log (``.eval``, ``.json``) or of a file of JSON lines.
        model, role: of a log, whose calls are played; default those of its evaluated model without a role.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        model: str | None = None,
        role: str | None = None,
        **model_args: Any,
    ) -> None:
        super().__init__(model_name, None, None, (), config)
        refuse_unknown("replay", model_args)
        self.path = Path(model_name).expanduser()
        if not self.path.is_file():
            raise NotFoundError(
                f"replay/{model_name}: there is no file {model_name}. Name a log or a file of JSON lines"
            )
        self.model, self.role = model, role
        self._of_log = self.path.suffix in LOGS
        self._lock: anyio.Lock | None = None
        self._known: dict[Key, _Answers] = {}
        self._all: _Answers | None = None  # of a file of JSON lines
        self._made: WeakKeyDictionary[SampleContext, Counter[str]] = WeakKeyDictionary()
        self._loose: Counter[str] = Counter()

    def max_connections(self) -> int:
        """Any number, as far as files go."""
        return AT_ONCE

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> tuple[ModelOutput, ModelCall]:
        """The next recorded answer of the sample around it."""
        await anyio.lowlevel.checkpoint()
        sample = current_sample()
        place = "" if sample is None or sample.sample_id is None else f"{sample.sample_id} {sample.epoch}"
        number = self._next(sample, place)
        what = str(self.path)
        if place and sample is not None:
            what = f"sample {sample.sample_id!r}, epoch {sample.epoch}, of {what}"
        if self._lock is None:
            self._lock = anyio.Lock()
        async with self._lock:
            answers = await self._answers(sample if place else None, what)
        output = answers.at(number, what)
        request = {"replay": str(self.path), "call": number + 1, "of": what}
        return output, ModelCall(request=request, response={"content": output.completion})

    def _next(self, sample: SampleContext | None, place: str) -> int:
        """The number of this call among those of its sample, from 0. Another attempt at a sample begins anew."""
        counts = self._loose if sample is None or not place else self._made.setdefault(sample, Counter())
        counts[place] += 1
        return counts[place] - 1

    async def _answers(self, sample: SampleContext | None, what: str) -> _Answers:
        if self._all is None and not self._of_log:
            self._all, self._known = await in_thread(_read_lines, self.path)
        if sample is None:
            return self._all if self._all is not None else await self._whole_log()
        identity = str(sample.sample_id)
        for key in ((identity, sample.epoch), (identity, None)):
            if key in self._known:
                return self._known[key]
        if not self._of_log:
            if not self._known and self._all is not None:
                return self._all  # answers for whoever asks
            raise ModelError(f"replay: {what} has no recorded answer")
        return await self._of_sample(sample, what)

    async def _of_sample(self, sample: SampleContext, what: str) -> _Answers:
        await self._name_model()
        try:
            record = await read_eval_log_sample_async(
                self.path, sample.sample_id, sample.epoch or 1, resolve_attachments=True
            )
        except (IndexError, KeyError) as error:
            raise ModelError(f"replay: {what} is not in the log") from error
        answers = _Answers(list(self._outputs(record)))
        self._known[str(sample.sample_id), sample.epoch] = answers
        return answers

    async def _whole_log(self) -> _Answers:
        log = await read_eval_log_async(self.path, resolve_attachments=True)
        self.model = self.model or log.eval.model
        self._all = _Answers([output for sample in log.samples or () for output in self._outputs(sample)])
        return self._all

    async def _name_model(self) -> None:
        if self.model is None:
            self.model = (await read_eval_log_async(self.path, header_only=True)).eval.model

    def _outputs(self, sample: EvalSample) -> Iterator[bytes]:
        found = [
            event.output
            for event in sample.events or ()
            if isinstance(event, ModelEvent)
            and event.error is None
            and event.output.choices
            and (event.model, event.role) == (self.model, self.role)
        ]
        if not found and self.role is None and sample.output is not None and sample.output.choices:
            found = [sample.output]  # a log that was kept without events
        yield from map(encode, found)


def _read_lines(path: Path) -> tuple[_Answers, dict[Key, _Answers]]:
    """The answers of a file of JSON lines: those without an id, and the others by id and epoch."""
    loose = _Answers()
    known: dict[Key, _Answers] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = decode(line)
            said = row["output"]
            plain = isinstance(said, str)
            output = ModelOutput.from_content("replay", said) if plain else ModelOutput.model_validate(said)
        except (LogError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f'replay/{path}, line {number}: {error!r}. A line is {{"id": …, "epoch": …, "output": …}}'
            ) from error
        place = loose if row.get("id") is None else known.setdefault((str(row["id"]), row.get("epoch")), _Answers())
        place.outputs.append(encode(output))
    return loose, known
