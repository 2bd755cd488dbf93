"""The solvers that come with proctor, and how solvers are declared and run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor import registry
from proctor.errors import UsageError
from proctor.log.transcript import Transcript, init_transcript
from proctor.model import (
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    ContentImage,
    ContentText,
    ModelOutput,
    get_model,
)
from proctor.model.model import evaluated_model
from proctor.runtime import open_runtime
from proctor.solver import (
    Generate,
    MultipleChoiceTemplate,
    Solver,
    TaskState,
    assistant_message,
    chain,
    chain_of_thought,
    fork,
    generate,
    multiple_choice,
    prompt_template,
    self_critique,
    solver,
    system_message,
    user_message,
)
from proctor.solver.solving import run_solver, use_generate
from proctor.solver.state import sample_state, use_state
from proctor.solver.store import Store, store, use_store
from proctor.solver.templates import format_template, resource


def make_state(text: str = "question", **fields: Any) -> TaskState:
    return TaskState(
        model="mock/model", sample_id=1, epoch=1, input=text, messages=[ChatMessageUser(content=text)], **fields
    )


def answering(*answers: str) -> Any:
    """A `Generate` that gives these answers in turn, and remembers how it was called."""
    left = list(answers)
    calls: list[dict[str, Any]] = []

    async def generate(state: TaskState, tool_calls: str = "loop", **config: Any) -> TaskState:
        await anyio.sleep(1)
        calls.append({"tool_calls": tool_calls, **config, "prompt": state.messages[-1].text})
        state.output = ModelOutput.from_content("mock", left.pop(0) if left else "again")
        state.messages.append(state.output.message)
        return state

    generate.calls = calls  # type: ignore[attr-defined]
    return generate


def texts(state: TaskState) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in state.messages]


async def test_generate_passes_its_options_on() -> None:
    model = answering("42")
    state = await generate(tool_calls="none", temperature=0.5)(make_state(), model)
    assert texts(state) == [("user", "question"), ("assistant", "42")]
    assert model.calls == [{"tool_calls": "none", "temperature": 0.5, "prompt": "question"}]


async def test_messages_go_where_they_belong_and_are_filled_in() -> None:
    state = make_state("q", metadata={"topic": "sums", "missing": None})
    state.store.set("hint", "count")
    steps = chain(
        system_message("You know {topic}."),
        system_message("Second {topic} {own}", own=2),
        user_message("Use {hint}; {unknown} {missing}"),
        assistant_message('I do: {{"a": 1}} {"json": [1]}'),
    )
    state = await steps(state, answering())
    assert texts(state) == [
        ("system", "You know sums."),
        ("system", "Second sums 2"),
        ("user", "q"),
        ("user", "Use count; {unknown} {missing}"),
        ("assistant", 'I do: {"a": 1} {"json": [1]}'),
    ]
    assert isinstance(state.messages[-1], ChatMessageAssistant)
    assert state.messages[-1].model == "mock/model"


async def test_a_prompt_is_put_into_a_template_and_keeps_its_pictures() -> None:
    state = make_state(metadata={"prompt": "not this", "topic": "sums"})
    state.messages = [ChatMessageUser(content=[ContentText(text="look"), ContentImage(image="a.png")])]
    state = await prompt_template("About {topic}: {prompt} ({extra})", extra="now")(state, answering())
    assert texts(state) == [("user", "About sums: look (now)")]
    assert [part.type for part in state.user_prompt.content_list] == ["text", "image"]


async def test_chain_of_thought_asks_for_an_answer_on_a_last_line() -> None:
    state = await chain_of_thought()(make_state("2+2?"), answering())
    assert "2+2?" in state.user_prompt.text
    assert "ANSWER: $ANSWER" in state.user_prompt.text
    state = await chain_of_thought("{prompt} think {braces}")(make_state("2+2?"), answering())
    assert state.user_prompt.text == "2+2? think {braces}"


async def test_templates_are_read_from_files(tmp_path: Path) -> None:
    path = tmp_path / "prompt.txt"
    path.write_text("From a file: {prompt}\n", encoding="utf-8")
    state = await prompt_template(str(path))(make_state("q"), answering())
    assert state.user_prompt.text == "From a file: q\n"
    assert resource("no such file.txt") == "no such file.txt"
    with pytest.raises(UsageError, match=r"there is no file 'nothing.txt'"):
        resource("nothing.txt", type="file")


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{a}", "1"),
        ("{a:>3}|{a!r}", "  1|'1'"),
        ("{b[k]} {b.x}", "v {b.x}"),
        ("{c[0]}{c[9]}", "x{c[9]}"),
        ("{unknown!r:>10}", "{unknown!r:>10}"),
        ("{none}", "{none}"),
        ("{}", "{}"),
        ('{"a": 1, "b": {"c": 2}}', '{"a": 1, "b": {"c": 2}}'),
        ("{{a}}", "{a}"),
        ("a } b { {a} {", "a } b { 1 {"),
        ("f() { return {a}; }", "f() { return 1; }"),
        ("\\frac{1}{2} {a}", "\\frac{1}{2} 1"),
        ("{a:.2f}", "{a:.2f}"),
    ],
)
def test_only_what_names_a_value_is_a_place(template: str, text: str) -> None:
    assert format_template(template, {"a": "1", "b": {"k": "v"}, "c": ["x"], "none": None}) == text


async def test_a_chain_stops_at_a_completed_state() -> None:
    ran: list[str] = []

    @solver
    def step(name: str, *, last: bool = False) -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            ran.append(name)
            state.completed = last
            return state

        return solve

    steps = chain(step("a"), [step("b", last=True), chain(step("c"))], step("d"))
    assert len(steps) == 4  # type: ignore[arg-type]
    await steps(make_state(), answering())
    assert ran == ["a", "b"]


def test_a_chain_is_made_of_solvers() -> None:
    with pytest.raises(TypeError, match="not of 'generate'"):
        chain("generate")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not of 3"):
        chain(3)  # type: ignore[arg-type]


def test_a_solver_remembers_how_it_was_made() -> None:
    made = system_message("hello", name="x")
    info = registry.info_of(made)
    assert info is not None
    assert (info.kind, info.name, dict(info.passed)) == ("solver", "system_message", {"template": "hello", "name": "x"})
    assert registry.lookup("solver", "system_message") is system_message


def test_solvers_can_be_named_and_be_classes() -> None:
    @solver(name="their own name")
    def first() -> Solver:
        return generate()

    @solver
    class Second:
        def __init__(self, times: int = 1) -> None:
            self.times = times

        async def __call__(self, state: TaskState, generate: Generate) -> TaskState:
            for _ in range(self.times):
                state = await generate(state)
            return state

    for made, name in ((first(), "their own name"), (Second(times=2), "Second")):
        info = registry.info_of(made)
        assert info is not None
        assert info.name == name


def test_a_solver_that_is_not_async_is_refused_when_made() -> None:
    @solver
    def wrong() -> Solver:
        def solve(state: TaskState, generate: Generate) -> TaskState:
            return state

        return solve  # type: ignore[return-value]

    with pytest.raises(TypeError, match="the solver 'wrong' returned a plain function: it must return an `async def`"):
        wrong()


async def test_a_solver_that_returns_nothing_is_named() -> None:
    @solver
    def forgetful() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:  # type: ignore[return]
            state.completed = True

        return solve

    for steps in (forgetful(), chain(forgetful(), generate())):
        with pytest.raises(UsageError, match="the solver forgetful returned nothing; a solver must end with `return"):
            await run_solver(steps, make_state(), answering())


async def test_each_step_has_a_span_in_the_transcript() -> None:
    transcript = Transcript()
    with init_transcript(transcript):
        await run_solver(chain(system_message("s"), generate()), make_state(), answering("a"))
    spans = [(event.name, event.type) for event in transcript.events if event.event == "span_begin"]  # type: ignore[union-attr]
    assert spans == [("system_message", "solver"), ("generate", "solver")]


async def test_the_current_state_is_the_one_the_last_solver_returned() -> None:
    other = make_state("other")

    @solver
    def replacing() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            return other

        return solve

    state = make_state()
    with use_state(state):
        assert sample_state() is state
        await run_solver(replacing(), state, answering())
        assert sample_state() is other
    assert sample_state() is None


async def test_a_fork_works_on_copies_with_stores_of_their_own() -> None:
    @solver
    def writing(name: str, seconds: float) -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            await anyio.sleep(seconds)
            store().set("who", name)
            state.metadata["who"] = name
            state.messages.append(ChatMessageUser(content=name))
            return await generate(state)

        return solve

    state = make_state(metadata={"who": "nobody"}, store={"who": "nobody"})
    with use_state(state), use_store(state.store), use_generate(answering()):
        began = anyio.current_time()
        forked = await fork(state, [writing("a", 5), chain(writing("b", 1), generate())])
        assert anyio.current_time() - began == 6
        single = await fork(state, writing("c", 0))
        assert sample_state() is state
        assert store() is state.store
    assert [branch.store.get("who") for branch in [*forked, single]] == ["a", "b", "c"]
    assert [branch.metadata["who"] for branch in [*forked, single]] == ["a", "b", "c"]
    assert [len(branch.messages) for branch in [*forked, single]] == [3, 4, 3]
    assert state.store.get("who") == state.metadata["who"] == "nobody"
    assert texts(state) == [("user", "question")]


async def test_a_fork_outside_of_a_sample_is_refused() -> None:
    with pytest.raises(UsageError, match="outside of a sample"):
        await fork(make_state(), generate())


@pytest.mark.parametrize("cot", [False, True])
@pytest.mark.parametrize("several", [False, True])
async def test_multiple_choice_asks_and_marks(cot: bool, several: bool) -> None:
    model = answering("thinking…\nANSWER: A, C" if several else "ANSWER: C")
    state = make_state("Which?", choices=["red", "green", "blue"])
    state = await multiple_choice(cot=cot, multiple_correct=several, max_tokens=5)(state, model)
    prompt = state.user_prompt.text
    assert "Which?" in prompt
    assert "A) red\nB) green\nC) blue" in prompt
    assert "A,B,C" in prompt
    assert ("step by step" in prompt) == cot
    assert [choice.correct for choice in state.choices] == [several, False, True]
    assert model.calls[0]["max_tokens"] == 5


async def test_multiple_choice_leaves_choices_unmarked_when_it_cannot_read_the_answer() -> None:
    state = make_state(choices=["a", "b"])
    state = await multiple_choice()(state, answering("I like both"))
    assert [choice.correct for choice in state.choices] == [None, None]


async def test_shuffled_choices_are_shown_shuffled_and_logged_unshuffled() -> None:
    orders = []
    for seen in ("A", "B", "C", "D"):
        state = make_state("Which?", choices=["one", "two", "three", "four"])
        model = answering(f"ANSWER: {seen}")
        state = await multiple_choice(shuffle=True)(state, model)
        shown = model.calls[0]["prompt"]
        orders.append(shown)
        (chosen,) = [choice for choice in state.choices if choice.correct]
        assert f"{seen}) {chosen.value}" in shown
        assert state.user_prompt.text.endswith("A) one\nB) two\nC) three\nD) four")
        letter = "ABCD"[chosen.original_position]
        assert state.output.completion == state.messages[-1].text == f"ANSWER: {letter}"
    assert len(set(orders)) == 1
    assert "A) one\nB) two\nC) three" not in orders[0]


async def test_multiple_choice_needs_choices_and_places() -> None:
    with pytest.raises(ValueError, match="sample 1 has none"):
        await multiple_choice()(make_state(), answering())
    with pytest.raises(ValueError, match=r"has no place \{choices\}"):
        multiple_choice(template="{question}?")
    assert multiple_choice(template=MultipleChoiceTemplate.SINGLE_ANSWER)


async def test_self_critique_shows_the_critique_to_the_model() -> None:
    asked: list[str] = []

    def critic(messages: Any, *_: Any) -> str:
        asked.append(messages[-1].text)
        return "too short"

    state = make_state("why?", metadata={"question": "hidden"})
    state.output = ModelOutput.from_content("mock", "because")
    async with open_runtime():
        with evaluated_model(get_model("mock/critic", custom_outputs=critic)):
            state = await self_critique()(state, answering("because of it"))
    assert "why?" in asked[0]
    assert "because" in asked[0]
    assert "hidden" not in asked[0]
    assert "too short" in state.messages[-2].text
    assert state.output.completion == "because of it"


def test_the_input_of_a_state_as_text() -> None:
    pictures = ChatMessageUser(content=[ContentImage(image="a"), ContentImage(image="b")])
    chat = [ChatMessageSystem(content="s"), ChatMessageUser(content="u"), ChatMessageAssistant(content="a")]

    def state(messages: Any) -> TaskState:
        return TaskState(model="m", sample_id=1, epoch=1, input=messages, messages=[])

    assert state("text").input_text == "text"
    assert state(chat).input_text == "u"
    assert state([pictures]).input_text == "[image] [image]"
    with pytest.raises(ValueError, match="no user message in the sample's input"):
        _ = state(chat[:1]).input_text
    with pytest.raises(ValueError, match="no user message in the conversation"):
        _ = state(chat).user_prompt


def test_a_new_state_has_an_empty_output_and_ids_of_its_own() -> None:
    state, other = make_state(), make_state()
    assert state.output.completion == ""
    assert state.uuid != other.uuid
    assert (state.target.text, len(state.choices), state.metadata, state.scores) == ("", 0, {}, None)
    assert (state.token_usage, state.cost_usage, state.tools, state.tool_choice) == (0, 0.0, [], None)


def test_a_store_gives_and_keeps_defaults() -> None:
    data = {"list": [1]}
    kept = Store(data)
    kept.get("list").append(2)
    assert data == {"list": [1]}
    assert kept.get("new") is None
    assert "new" not in kept
    kept.get("new", []).append("x")
    assert kept.get("new") == ["x"]
    kept.set("n", 1)
    kept.delete("n")
    assert list(kept.keys()) == ["list", "new"]
    assert dict(kept.items()) == {"list": [1, 2], "new": ["x"]} == kept
    with pytest.raises(KeyError):
        kept.delete("n")


async def test_the_store_outside_of_a_sample_is_nobodys() -> None:
    store().set("leak", 1)
    assert "leak" not in store()
