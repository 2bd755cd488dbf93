"""`get_model`, `Model` and the model actor: who is the same model, what is limited, what is recorded."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import anyio
import pytest
from attrs import define, field

from proctor import registry
from proctor.errors import ModelError, ModelGivenUp, NotFoundError, RankError, RateLimitError, UsageError
from proctor.log.events import ModelEvent
from proctor.log.transcript import Transcript, init_transcript
from proctor.model import (
    ChatMessageSystem,
    ChatMessageUser,
    GenerateConfig,
    ModelAPI,
    ModelCall,
    ModelOutput,
    ModelUsage,
    evaluated_model,
    get_model,
    log_model_api,
    model_roles,
    modelapi,
    roles,
)
from proctor.model.toolcall import ToolInfo
from proctor.runtime import SampleContext, current_runtime, open_runtime
from proctor.testing import run_virtual


@define
class Server:
    """What the fake provider counts."""

    clients: int = 0
    closed: int = 0
    in_flight: int = 0
    peak: int = 0
    requests: int = 0
    seen: list[Any] = field(factory=list)
    answers: list[Any] = field(factory=list)
    takes: float = 1.0


@pytest.fixture
def server() -> Any:
    """A provider ``fake`` whose state the test sees."""
    state = Server()

    class FakeAPI(ModelAPI):
        def __init__(
            self,
            model_name: str,
            base_url: str | None = None,
            api_key: str | None = None,
            config: GenerateConfig | None = None,
            colour: str = "red",
        ) -> None:
            super().__init__(model_name, base_url, api_key, ["FAKE_API_KEY"], config)
            state.clients += 1

        async def generate(self, input: Any, tools: Any, tool_choice: Any, config: Any) -> Any:
            state.requests += 1
            state.in_flight += 1
            state.peak = max(state.peak, state.in_flight)
            state.seen.append((input, tools, tool_choice, config))
            try:
                await anyio.sleep(state.takes)
            finally:
                state.in_flight -= 1
            answer = state.answers.pop(0) if state.answers else "fine"
            if isinstance(answer, Exception):
                raise answer
            if isinstance(answer, str):
                answer = ModelOutput.from_content("fake-1", answer)
                answer.usage = ModelUsage(input_tokens=2, output_tokens=3, total_tokens=5)
                return answer, ModelCall(request={"a": 1}, response={"b": 2})
            return answer

        async def aclose(self) -> None:
            assert state.in_flight == 0
            state.closed += 1

        def max_connections(self) -> int:
            return 3

    modelapi("fake")(FakeAPI)
    yield state
    registry._table.pop(("modelapi", "fake"))


async def many(count: int, *models: Any, **options: Any) -> None:
    async with anyio.create_task_group() as group:
        for model in models:
            for _ in range(count):
                group.start_soon(lambda model=model: model.generate("q", **options))


# -- names ------------------------------------------------------------------------------------------------------------


async def test_the_same_arguments_give_the_same_object_within_a_runtime(server: Server) -> None:
    async with open_runtime():
        one = get_model("fake/m", config=GenerateConfig(temperature=0.1), colour="blue")
        assert get_model("fake/m", config=GenerateConfig(temperature=0.1), colour="blue") is one
        for other in (
            get_model("fake/m"),
            get_model("fake/m", colour="blue"),
            get_model("fake/n", config=GenerateConfig(temperature=0.1), colour="blue"),
            get_model("fake/m", config=GenerateConfig(temperature=0.1), colour="blue", api_key="k"),
            get_model("fake/m", config=GenerateConfig(temperature=0.1), colour="blue", memoize=False),
        ):
            assert other is not one
        async with open_runtime():
            assert get_model("fake/m", config=GenerateConfig(temperature=0.1), colour="blue") is not one
    assert get_model("fake/m") is not get_model("fake/m")


@pytest.mark.parametrize("name", ["fake", "/m", "fake/", ""])
def test_a_name_without_a_provider_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROCTOR_EVAL_MODEL", raising=False)
    monkeypatch.delenv("INSPECT_EVAL_MODEL", raising=False)
    with pytest.raises(UsageError, match="provider/"):
        get_model(name)


def test_an_unknown_provider_and_an_unknown_argument_are_refused(server: Server) -> None:
    with pytest.raises(NotFoundError, match="openai-api"):
        get_model("openai-apu/x/y")
    with pytest.raises(UsageError, match=r"fake/m.*-M.*hue"):
        get_model("fake/m", hue="blue")


def test_a_registered_function_may_return_the_class(server: Server) -> None:
    fake = registry.lookup("modelapi", "fake")
    modelapi("late")(lambda: fake)
    try:
        assert isinstance(get_model("late/m").api, ModelAPI)
        modelapi("wrong")(lambda: str)  # type: ignore[arg-type,return-value]
        with pytest.raises(UsageError, match="no ModelAPI"):
            get_model("wrong/m")
    finally:
        for name in ("late", "wrong"):
            registry._table.pop(("modelapi", name))


def test_without_a_name_it_is_the_role_the_default_the_evaluated_or_the_environments(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PROCTOR_EVAL_MODEL", "INSPECT_EVAL_MODEL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match="PROCTOR_EVAL_MODEL"):
        get_model()
    monkeypatch.setenv("INSPECT_EVAL_MODEL", "fake/theirs")
    assert str(get_model()) == "fake/theirs"
    monkeypatch.setenv("PROCTOR_EVAL_MODEL", "fake/ours,fake/second")
    assert str(get_model()) == "fake/ours"
    evaluated, grader = get_model("fake/evaluated"), get_model("fake/grader")
    with evaluated_model(evaluated), roles({"grader": grader, "team": [grader, evaluated]}):
        assert get_model() is evaluated
        assert get_model(role="other") is evaluated
        found = get_model(role="grader", config=GenerateConfig(temperature=0.5))
        assert (str(found), found.role, found.config.temperature) == ("fake/grader", "grader", 0.5)
        assert str(get_model(role="team")) == "fake/grader"
        assert str(get_model(role="other", default="fake/default")) == "fake/default"
        assert get_model(role="other", default=grader).role == "other"
        assert grader.role is None
        assert set(model_roles()) == {"grader", "team"}
        with pytest.raises(UsageError, match="critic"):
            get_model(role="critic", required=True)
        assert get_model(grader) is grader
    assert str(get_model()) == "fake/ours"


def test_arguments_with_keys_are_not_shown(server: Server) -> None:
    made = get_model("mock/m", api_token="canary", latency=1, custom_outputs=iter(()), aws_profile="canary")
    assert made.public_args == {"latency": 1}
    assert set(made.model_args) == {"api_token", "latency", "custom_outputs", "aws_profile"}


# -- limits -----------------------------------------------------------------------------------------------------------


async def test_the_providers_number_of_connections_is_the_default(server: Server) -> None:
    async with open_runtime() as runtime:
        model = get_model("fake/m")
        assert model.max_connections() == 3
        assert model.limiter_nowait(runtime) is None
        await many(20, model)
        assert server.peak == 3
        limiter = model.limiter_nowait(runtime)
        assert limiter is not None
        assert (limiter.name, limiter.limit, limiter.used) == ("fake/m", 3, 0)


@pytest.mark.parametrize("limit", [1, 2, 7])
async def test_an_asked_for_number_is_the_limit_wherever_it_is_said(server: Server, limit: int) -> None:
    config = GenerateConfig(max_connections=limit)
    async with open_runtime():
        model = get_model("fake/m", config=config)
        assert model.max_connections() == limit
        await many(20, model)
        assert server.peak == limit
        server.peak = 0
        await many(20, get_model("fake/n"), config=config)
        assert server.peak == limit
        server.peak = 0
        await many(20, get_model("fake/o").with_config(config))
        assert server.peak == limit


async def test_of_two_tasks_the_smaller_number_counts_while_both_run(server: Server) -> None:
    small = get_model("fake/m", config=GenerateConfig(max_connections=2))
    large = get_model("fake/m", config=GenerateConfig(max_connections=6))
    async with open_runtime() as runtime:
        async with large.held(runtime) as ref:
            assert ref.limiter.limit == 6
            async with small.held(runtime), small.held(runtime):
                assert ref.limiter.limit == 2
                await many(20, large)
                assert server.peak == 2
            assert ref.limiter.limit == 6
            await many(20, large)
            assert server.peak == 6
        assert ref.limiter.limit == 3


async def test_bounds_for_adaptive_pacing_hold_the_default(server: Server) -> None:
    for given, limit in ((2, 2), ("1-2", 2), (100, 3), (True, 3), (False, 3)):
        assert get_model("fake/m", config=GenerateConfig(adaptive_connections=given)).max_connections() == limit  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("other", "shared"),
    [
        ({}, True),
        ({"colour": "blue"}, True),
        ({"config": GenerateConfig(temperature=1)}, True),
        ({"api_key": "other"}, False),
        ({"base_url": "http://other"}, False),
    ],
)
async def test_limits_are_shared_by_account_url_and_model(server: Server, other: dict[str, Any], shared: bool) -> None:
    async with open_runtime() as runtime:
        one, two = get_model("fake/m", api_key="k"), get_model("fake/m", **{"api_key": "k", **other})
        await many(10, one, two)
        assert server.peak == (3 if shared else 6)
        assert (one.limiter_nowait(runtime) is two.limiter_nowait(runtime)) is shared


async def test_a_refused_call_pauses_all_holds_no_connection_and_goes_first(server: Server) -> None:
    server.answers = [RateLimitError("slow", retry_after=0.5)]
    async with open_runtime() as runtime:
        model = get_model("fake/m", config=GenerateConfig(max_connections=1))
        finished: list[int] = []

        async def call(number: int) -> None:
            with SampleContext(group="task", admission=number):
                await model.generate(f"{number}")
            finished.append(number)

        async with anyio.create_task_group() as group:
            for number in range(4):
                group.start_soon(call, number)
                await anyio.sleep(0.01)
            await anyio.sleep(1.2)
            limiter = model.limiter_nowait(runtime)
            assert limiter is not None
            assert (limiter.used, limiter.waiting, server.requests) == (0, 4, 1), "all wait for the shared pause"
        assert finished == [0, 1, 2, 3]
    assert server.peak == 1
    assert server.requests == 5


async def test_a_model_may_not_be_called_while_a_connection_of_another_is_held(server: Server) -> None:
    class Outer(ModelAPI):
        async def generate(self, input: Any, tools: Any, tool_choice: Any, config: Any) -> ModelOutput:
            return await get_model("fake/m").generate(input)

    class Ensemble(Outer):
        composite = True

    modelapi("outer")(Outer)
    modelapi("ensemble")(Ensemble)
    try:
        async with open_runtime():
            with pytest.raises(RankError):
                await get_model("outer/m").generate("q")
            assert (await get_model("ensemble/m").generate("q")).completion == "fine"
    finally:
        for name in ("outer", "ensemble"):
            registry._table.pop(("modelapi", name))


# -- lifetimes --------------------------------------------------------------------------------------------------------


async def test_clients_are_closed_with_the_runtime_and_not_before(server: Server) -> None:
    model = get_model("fake/m")
    for _ in range(3):
        async with open_runtime():
            await model.generate("q")
            await get_model("fake/m", colour="blue").generate("q")
            before = server.closed
            await model.generate("q")
            assert server.closed == before
        assert server.closed == before + 2
    assert server.closed == 6
    assert server.clients == 6


def test_a_model_made_at_module_level_works_on_several_loops_and_backends(server: Server) -> None:
    model = get_model("fake/m")

    async def use() -> str:
        async with open_runtime():
            return (await model.generate("q")).completion

    for backend in ("asyncio", "trio", "asyncio", "trio"):
        assert run_virtual(backend, use) == "fine"
    assert server.closed == server.clients == 4


async def test_outside_a_runtime_a_call_opens_one_for_itself(server: Server) -> None:
    assert current_runtime() is None
    assert (await get_model("fake/m").generate("q")).completion == "fine"
    assert current_runtime() is None
    assert server.closed == 1


async def test_descriptions_are_not_kept_by_a_runtime_that_is_gone(server: Server) -> None:
    async with open_runtime():
        model = weakref.ref(get_model("fake/m"))
        assert model() is get_model("fake/m")
    gc.collect()
    assert model() is None


async def test_a_cancelled_call_gives_its_connection_back(server: Server) -> None:
    async with open_runtime() as runtime:
        model = get_model("fake/m")
        for at in (0.0, 0.5, 1.5, 2.5):
            with anyio.move_on_after(at):
                await many(8, model)
            limiter = model.limiter_nowait(runtime)
            assert limiter is None or (limiter.used, limiter.waiting) == (0, 0)
        assert server.in_flight == 0


# -- what a call asks and records -------------------------------------------------------------------------------------


async def test_a_text_becomes_a_users_message_and_the_system_message_goes_first(server: Server) -> None:
    async with open_runtime():
        await get_model("fake/m", config=GenerateConfig(system_message="be brief")).generate("q")
    system, user = server.seen[0][0]
    assert isinstance(system, ChatMessageSystem)
    assert isinstance(user, ChatMessageUser)
    assert (system.text, user.text) == ("be brief", "q")
    assert system.id
    assert user.id


async def test_the_calls_own_configuration_goes_first(server: Server) -> None:
    async with open_runtime():
        model = get_model("fake/m", config=GenerateConfig(temperature=0.5, max_tokens=5))
        await model.generate("q", config=GenerateConfig(temperature=0.0))
    config = server.seen[0][3]
    assert (config.temperature, config.max_tokens) == (0.0, 5)


TOOL = ToolInfo(name="t", description="d")


@pytest.mark.parametrize(
    ("tools", "choice", "sent"),
    [
        ([], None, ([], "none")),
        ([TOOL], None, ([TOOL], "auto")),
        ([TOOL], "any", ([TOOL], "any")),
        ([TOOL], "none", ([], "none")),
    ],
)
async def test_tools_are_offered_unless_none_may_be_called(server: Server, tools: Any, choice: Any, sent: Any) -> None:
    async with open_runtime():
        await get_model("fake/m").generate("q", tools=tools, tool_choice=choice)
    assert server.seen[0][1:3] == sent


async def test_what_is_no_input_or_no_output_is_said(server: Server) -> None:
    async with open_runtime():
        model = get_model("fake/m")
        with pytest.raises(UsageError, match="at least one message"):
            await model.generate([])
        with pytest.raises(UsageError, match="len is no tool"):
            await model.generate("q", tools=[len])  # type: ignore[list-item]
        server.answers = [5]
        with pytest.raises(ModelError, match="returned int"):
            await model.generate("q")


async def test_a_call_is_one_event_from_its_start_with_its_retries(server: Server) -> None:
    server.answers = [RateLimitError("slow", retry_after=1), "fine"]
    into = Transcript()
    async with open_runtime():
        await anyio.sleep(10)
        model = get_model("fake/m", config=GenerateConfig(extra_headers={"x-api-key": "canary"}))
        with init_transcript(into):
            output = await model.with_config(model.config, role="grader").generate("q")
    [event] = into.events
    assert isinstance(event, ModelEvent)
    assert (event.model, event.role, event.retries, event.error, event.pending) == ("fake/m", "grader", 1, None, None)
    assert event.output is output
    assert event.call is None
    assert output.time == 3
    assert event.working_time == 1
    assert event.input[0].text == "q"
    assert output.message.id
    assert event.timestamp is not None
    assert event.completed is not None
    assert event.completed >= event.timestamp
    assert "canary" not in repr(event)
    assert server.seen[0][3].extra_headers == {"x-api-key": "canary"}


async def test_raw_calls_are_logged_when_wanted_and_when_they_failed(server: Server) -> None:
    into = Transcript()
    failed = (ModelError("bad"), ModelCall(request={"a": 1}, error=True))
    async with open_runtime():
        model = get_model("fake/m", api_key="canary-key")
        with init_transcript(into):
            with log_model_api(True):
                await model.generate("q")
            server.answers = [failed, ModelError("key canary-key is bad")]
            with pytest.raises(ModelError, match="bad"):
                await model.generate("q")
            with pytest.raises(ModelError, match=r"key \[key\] is bad"):
                await model.generate("q")
    first, second, third = into.events
    assert first.call == ModelCall(request={"a": 1}, response={"b": 2})
    assert second.call == failed[1]
    assert (second.error, third.error) == ("bad", "key [key] is bad")


async def test_a_cancelled_call_is_an_event_too(server: Server) -> None:
    into = Transcript()
    async with open_runtime():
        with init_transcript(into), anyio.move_on_after(0.5):
            await get_model("fake/m").generate("q")
    [event] = into.events
    assert (event.error, event.pending) == ("cancelled", None)


async def test_usage_and_working_time_go_to_the_sample(server: Server) -> None:
    server.answers = [RateLimitError("slow", retry_after=4)]
    async with open_runtime():
        sample = SampleContext(group="t")
        model = get_model("fake/m")
        with sample:
            await model.generate("q")
            await get_model("fake/m").with_config(GenerateConfig(), role="grader").generate("q")
    assert sample.usage == {"fake/m": ModelUsage(input_tokens=4, output_tokens=6, total_tokens=10)}
    assert sample.role_usage == {"grader": ModelUsage(input_tokens=2, output_tokens=3, total_tokens=5)}
    assert sample.calls == 2
    assert sample.working.elapsed() == 5
    assert sample.working.working() == 3


async def test_a_model_that_is_given_up_stays_so_and_others_go_on(server: Server) -> None:
    server.answers = [ModelGivenUp("wrong key", status=401)]
    async with open_runtime():
        bad, good = get_model("fake/bad"), get_model("fake/good")
        with pytest.raises(ModelGivenUp, match="wrong key"):
            await bad.generate("q")
        raised = []
        for _ in range(2):
            with pytest.raises(ModelGivenUp, match="wrong key") as caught:
                await bad.generate("q")
            raised.append(caught.value)
        assert raised[0] is not raised[1]
        assert server.requests == 1
        assert (await good.generate("q")).completion == "fine"


async def test_those_that_queue_for_a_model_that_is_given_up_leave_without_a_request(server: Server) -> None:
    server.answers = [ModelGivenUp("wrong key", status=401)] * 20
    ended = []

    async def call() -> None:
        with pytest.raises(ModelGivenUp):
            await get_model("fake/m").generate("q")
        ended.append(anyio.current_time())

    async with open_runtime(), anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(call)
    assert server.requests == 3
    assert ended == [1.0] * 20


@pytest.mark.parametrize(("wanted", "raises"), [(True, True), (False, False), (None, False)])
async def test_a_refusal_is_an_error_where_that_is_wanted(wanted: bool | None, raises: bool) -> None:
    refusal = ModelOutput.from_content("m", "I will not", stop_reason="content_filter")
    model = get_model("mock/m", memoize=False, custom_outputs=[refusal])
    config = GenerateConfig(fail_on_refusal=wanted)
    async with open_runtime():
        if raises:
            with pytest.raises(ModelError, match="I will not"):
                await model.generate("q", config=config)
        else:
            assert (await model.generate("q", config=config)).stop_reason == "content_filter"
