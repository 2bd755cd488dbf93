"""Tools for any type and any timing: what fits a schema is taken, what does not is refused, order is kept."""

from __future__ import annotations

import dataclasses
import enum
import json
from datetime import date
from typing import Any, Literal, TypedDict, get_args, get_origin

import anyio
import attrs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from proctor.errors import ToolError, ToolParsingError
from proctor.log.events import ToolEvent
from proctor.log.transcript import Transcript, init_transcript
from proctor.model import ChatMessageAssistant, execute_tools
from proctor.model.portable import plain
from proctor.model.toolcall import ToolCall
from proctor.testing import run_virtual
from proctor.testing.strategies import scaled
from proctor.tool import ToolDef
from proctor.tool.arguments import converter_for, misfits
from proctor.tool.outcome import cut
from proctor.tool.schema import json_schema, schema_from


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Corner:
    x: int
    label: str = "none"


@dataclasses.dataclass(frozen=True)
class Line:
    start: Corner
    end: Corner | None = None


class Place(TypedDict):
    name: str
    corners: list[Corner]


LEAVES = st.sampled_from([int, str, bool, float, date, Color, Literal["a", "b"], Literal[1, 2], Corner, Line, Place])


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        inner.map(lambda t: list[t]),
        inner.map(lambda t: dict[str, t]),
        inner.map(lambda t: t | None),
        st.tuples(inner, inner).map(lambda pair: tuple[pair]),
    )


TYPES = st.recursive(LEAVES, nested, max_leaves=4)


def values(t: Any) -> st.SearchStrategy[Any]:
    """Values of a type."""
    origin, arguments = get_origin(t) or t, get_args(t)
    if t is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    if t is int:
        return st.integers(-(2**53), 2**53)
    if origin is list:
        return st.lists(values(arguments[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(st.text(max_size=3), values(arguments[1]), max_size=3)
    if origin is tuple:
        return st.tuples(*(values(each) for each in arguments))
    if origin is Literal:
        return st.sampled_from(arguments)
    if t is Place:
        return st.fixed_dictionaries({"name": st.text(max_size=3), "corners": values(list[Corner])})
    if t is Corner:
        return st.builds(Corner, st.integers(-5, 5), st.text(max_size=3))
    if t is Line:
        return st.builds(Line, values(Corner), st.none() | values(Corner))
    if arguments:
        return st.one_of(*(values(each) for each in arguments))
    return st.none() if t is type(None) else st.from_type(t)


def as_json(value: Any) -> Any:
    """A value as the JSON that stands for it."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, date):
        return value.isoformat()
    if attrs.has(type(value)):
        return {name: as_json(each) for name, each in attrs.asdict(value, recurse=False).items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: as_json(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {name: as_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    return value


TYPED_VALUES = TYPES.flatmap(lambda t: st.tuples(st.just(t), values(t)))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False, width=16) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@scaled(2)
@given(t=TYPES)
def test_a_schema_survives_json(t: Any) -> None:
    schema = json_schema(t)
    assert schema_from(json.loads(json.dumps(plain(schema, exclude_none=True)))) == schema


@scaled(4)
@given(typed=TYPED_VALUES)
def test_a_value_comes_back_from_the_json_that_fits_its_schema(typed: tuple[Any, Any]) -> None:
    t, value = typed
    given = json.loads(json.dumps(as_json(value)))
    assert list(misfits(given, json_schema(t))) == []
    assert converter_for(t)(given) == value


@scaled(4)
@given(t=TYPES, value=JSON)
def test_whatever_a_model_sends_is_taken_or_told_to_it(t: Any, value: Any) -> None:
    """No other exception: it would end the sample."""
    fits = not list(misfits(value, json_schema(t)))
    try:
        got = converter_for(t)(value)
    except ToolParsingError:
        return
    if fits:
        assert list(misfits(json.loads(json.dumps(as_json(got))), json_schema(t))) == []


@scaled(2)
@given(text=st.text(max_size=60), limit=st.integers(1, 80))
def test_a_result_is_cut_to_its_two_ends(text: str, limit: int) -> None:
    data = text.encode("utf-8", "surrogatepass")
    shown, sizes = cut(text, "f", limit)
    if len(data) <= limit:
        assert (shown, sizes) == (text, None)
        return
    assert sizes == (len(data), limit)
    assume("[The output" not in text)
    head, _, rest = shown.partition("\n\n[The output of f was ")
    tail = rest.partition("left out here.]\n\n")[2]
    assert text.startswith(head)
    assert text.endswith(tail)
    assert limit - 6 <= len((head + tail).encode("utf-8", "surrogatepass")) <= limit


@attrs.frozen
class Planned:
    """A call: which tool, how long it takes, whether it fails in a way that the model is told of."""

    parallel: bool
    seconds: int
    fails: bool


PLANS = st.lists(st.builds(Planned, st.booleans(), st.integers(0, 5), st.booleans()), max_size=8)


class Stage:
    """Two tools, one parallel, that record who runs when."""

    def __init__(self, plan: list[Planned]) -> None:
        self.plan = plan
        self.running: set[int] = set()
        self.began: list[int] = []
        self.together: list[tuple[int, ...]] = []

    async def work(self, number: int) -> str:
        """Take the time that is planned.

        Args:
            number: of the call.
        """
        planned = self.plan[number]
        self.running.add(number)
        self.began.append(number)
        self.together.append(tuple(sorted(self.running)))
        try:
            await anyio.sleep(planned.seconds)
        finally:
            self.running.discard(number)
        if planned.fails:
            raise ToolError(f"{number} failed")
        return f"{number} done"

    @property
    def tools(self) -> list[ToolDef]:
        return [ToolDef(self.work, name="beside", parallel=True), ToolDef(self.work, name="alone")]

    @property
    def message(self) -> ChatMessageAssistant:
        calls = [
            ToolCall(f"c{number}", "beside" if each.parallel else "alone", {"number": number})
            for number, each in enumerate(self.plan)
        ]
        return ChatMessageAssistant(content="", tool_calls=calls)

    def stage_of(self, number: int) -> int:
        """The stage a call belongs to: neighbours that are all parallel share one."""
        stage = 0
        for each in range(1, number + 1):
            if not (self.plan[each].parallel and self.plan[each - 1].parallel):
                stage += 1
        return stage


def check_order(backend: str, plan: list[Planned]) -> None:
    stage = Stage(plan)

    async def main() -> tuple[list[Any], float]:
        began = anyio.current_time()
        made, _ = await execute_tools([stage.message], stage.tools)
        return made, anyio.current_time() - began

    made, took = run_virtual(backend, main)
    told = [message.error.message if message.error is not None else message.text for message in made]
    assert told == [f"{number} {'failed' if each.fails else 'done'}" for number, each in enumerate(plan)]
    assert [message.tool_call_id for message in made] == [f"c{number}" for number in range(len(plan))]
    stages = [stage.stage_of(number) for number in stage.began]
    assert stages == sorted(stages), "a stage began before the one before it"
    for together in stage.together:
        assert len({stage.stage_of(number) for number in together}) == 1, "calls of two stages ran at once"
    longest: dict[int, int] = {}
    for number, each in enumerate(plan):
        longest[stage.stage_of(number)] = max(longest.get(stage.stage_of(number), 0), each.seconds)
    assert took == pytest.approx(sum(longest.values())), "neighbours did not run at once"


@scaled(4)
@given(plan=PLANS)
def test_results_keep_the_order_of_the_calls(backend: str, plan: list[Planned]) -> None:
    check_order(backend, plan)


def check_cancellation(backend: str, plan: list[Planned], after: int) -> None:
    stage = Stage(plan)
    kept = Transcript()

    async def main() -> bool:
        with init_transcript(kept), anyio.move_on_after(after) as scope:
            await execute_tools([stage.message], stage.tools)
        assert not stage.running, "a tool ran on"
        began = list(stage.began)
        await anyio.sleep(100)
        assert stage.began == began, "a tool began afterwards"
        return scope.cancelled_caught

    run_virtual(backend, main)
    events = [event for event in kept.events if isinstance(event, ToolEvent)]
    assert len(events) == len(stage.began)
    assert all(event.pending is None and event.completed is not None for event in events), "an event was left open"


@scaled(4)
@given(plan=PLANS, after=st.integers(0, 12))
def test_a_cancelled_message_leaves_no_tool_running_and_no_event_open(
    backend: str, plan: list[Planned], after: int
) -> None:
    check_cancellation(backend, plan, after)


# -- the properties can fail ------------------------------------------------------------------------------------------


def test_the_order_property_finds_results_in_the_order_of_their_ends(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from proctor.tool import execution

    async def at_once(stage: Any) -> None:
        async with anyio.create_task_group() as nursery:
            for call in stage:
                nursery.start_soon(call.run)

    plan = [Planned(parallel=False, seconds=2, fails=False), Planned(parallel=False, seconds=1, fails=True)]
    check_order(backend, plan)
    with monkeypatch.context() as patch:
        patch.setattr(execution, "_stages", lambda calls: [calls])
        patch.setattr(execution, "_run", at_once)
        with pytest.raises(AssertionError, match="stage"):
            check_order(backend, plan)


def test_the_cancellation_property_finds_an_open_event(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from proctor.tool import execution

    plan = [Planned(parallel=True, seconds=5, fails=False)] * 2
    check_cancellation(backend, plan, 2)
    with monkeypatch.context() as patch:
        patch.setattr(execution._Call, "_failed", lambda self, raised: None)
        with pytest.raises(AssertionError, match="an event was left open"):
            check_cancellation(backend, plan, 2)


def test_the_value_property_finds_a_schema_that_is_too_narrow() -> None:
    assert list(misfits([1, "a"], json_schema(tuple[int, str]))) == []
    assert list(misfits([1, "a"], json_schema(list[int]))) == ["[1]: 'a' is not of type integer"]
