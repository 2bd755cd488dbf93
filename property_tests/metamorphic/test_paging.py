"""Invariant 42: with paging or without, under any budget, the same samples run in the same order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeVar, TypeVarTuple

import anyio
from anyio.lowlevel import checkpoint
from attrs import evolve, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.dataset import Dataset, MemoryDataset, Sample
from proctor.dataset.iterable import IterableDataset
from proctor.dataset.source import FileSource
from proctor.dataset.streamed import Reading, StreamedDataset
from proctor.errors import UsageError
from proctor.evaluation.feed import Feed, Planned
from proctor.evaluation.options import EvalOptions
from proctor.model import ChatMessageUser
from proctor.testing import run_virtual

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

EXAMPLES = max(50, settings.default.max_examples)

texts = st.text(max_size=30)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
samples = st.builds(
    Sample,
    input=texts | st.lists(st.builds(ChatMessageUser, content=texts, id=texts), max_size=2),
    target=st.sampled_from(["A", "B", "C"]),
    choices=st.none() | st.just(["one", "two", "three"]),
    id=st.none() | st.integers(-5, 40) | st.sampled_from(["a", "1", "x y", "ü", "\ud800"]),
    metadata=st.none() | st.dictionaries(texts, values, max_size=3),
    files=st.none() | st.dictionaries(texts, texts, max_size=2),
)


def id_of(place: int, sample: Sample) -> str:
    return str(place + 1 if sample.id is None else sample.id)


@st.composite
def different(draw: st.DrawFn, most: int = 25) -> list[Sample]:
    """Samples no two of which have one id, whether it is their own or their number."""
    kept: list[Sample] = []
    for sample in draw(st.lists(samples, max_size=most) | st.lists(samples, min_size=8, max_size=most)):
        numbers = {id_of(place, each) for place, each in enumerate(kept)}
        if id_of(len(kept), sample) in numbers:
            sample = evolve(sample, id=f"other {len(kept)}")
        kept.append(sample)
    # A number that was given by hand may be the place of a later sample without one.
    taken = [id_of(place, sample) for place, sample in enumerate(kept)]
    return [
        evolve(sample, id=f"twice {place}") if taken.count(taken[place]) > 1 else sample
        for place, sample in enumerate(kept)
    ]


@frozen
class Case:
    """A dataset, what is done to it when it is read, and what a run does to it."""

    samples: Sequence[Sample]
    shuffle: int | None
    choices: int | None
    first: int | None
    options: EvalOptions
    epochs: int
    budget: int


limits = st.none() | st.integers(1, 30) | st.tuples(st.integers(0, 3), st.integers(4, 30))
wanted = st.sampled_from(["1", 2, "[0-4]", "*[02468]", "*", "o*"])
odd = st.sampled_from(["nobody", "x*", "[", 99])
options = st.builds(
    EvalOptions,
    limit=limits,
    sample_id=st.none() | wanted | st.lists(wanted, min_size=1, max_size=2) | st.lists(odd | wanted, min_size=1),
    sample_shuffle=st.sampled_from([None, False, 0, 1, 2, 3]),
)


def plain(count: int, ids: str) -> list[Sample]:
    """Samples that differ in little, so that chance is spent on what is done to them."""
    texts = {"numbers": None, "texts": "o{}", "some": "o{}"}[ids]
    own = [texts.format(n) if texts and (ids == "texts" or n % 3) else None for n in range(count)]
    return [Sample(f"q{n}", target="ABC"[n % 3], choices=["x", "y", "z"], id=own[n]) for n in range(count)]


def cases_of(found: st.SearchStrategy[list[Sample]]) -> st.SearchStrategy[Case]:
    return st.builds(
        Case,
        samples=found,
        shuffle=st.sampled_from([None, None, 0, 1, 2]),
        choices=st.sampled_from([None, None, 0, 1, 2]),
        first=st.sampled_from([None, None, 5, 14]),
        options=options,
        epochs=st.integers(1, 3),
        budget=st.sampled_from([1, 60, 200, 1_000, 10_000]),
    )


cases = cases_of(different())
plain_cases = cases_of(st.builds(plain, st.integers(0, 25), st.sampled_from(["numbers", "texts", "some"])))


def reading(case: Case) -> Reading:
    return Reading(
        read=lambda: iter(case.samples),
        source="dataset",
        shuffle=case.shuffle,
        choices=case.choices,
        limit=case.first,
    )


def as_list(case: Case) -> MemoryDataset:
    """The dataset as it is when it is read into memory and changed there."""
    dataset = MemoryDataset(list(case.samples))
    if case.shuffle is not None:
        dataset.shuffle(case.shuffle)
    if case.choices is not None:
        dataset.shuffle_choices(case.choices)
    return dataset if case.first is None else dataset[: case.first]


Played = tuple[list[Planned], list[Any], int | None, str]


def by_hand(case: Case) -> Played | None:
    """What should be sent, by lists and slices; None when it should be refused."""
    found = [
        evolve(sample, id=place if sample.id is None else sample.id) for place, sample in enumerate(as_list(case), 1)
    ]
    shuffled = MemoryDataset(found)
    if case.options.sample_shuffle is not None and case.options.sample_shuffle is not False:
        shuffled.shuffle(case.options.sample_shuffle)
    chosen, ids = list(shuffled), case.options.sample_id
    patterns = [] if ids is None else [str(each) for each in (ids if isinstance(ids, list) else [ids])]
    if not all(any(fnmatchcase(str(sample.id), pattern) for sample in chosen) for pattern in patterns):
        return None
    if patterns:
        chosen = [sample for sample in chosen if any(fnmatchcase(str(sample.id), pattern) for pattern in patterns)]
    limit = case.options.limit
    chosen = chosen[slice(*limit) if isinstance(limit, tuple) else slice(limit)]
    if not chosen:
        return None
    epochs = range(1, case.epochs + 1)
    sent = [Planned(index, epoch, sample) for epoch in epochs for index, sample in enumerate(chosen)]
    return sent, [sample.id for sample in chosen], len(sent), ""


async def play(dataset: Dataset, case: Case, budget: int | None) -> Played:
    """What a feed sends: the samples, their ids, how many it said there are, and the error that ended it."""
    feed: Feed | None = None

    async def inline(function: Callable[[*Ts], T], /, *args: *Ts) -> T:
        await checkpoint()
        made = function(*args)
        source = getattr(feed, "source", None)
        if isinstance(source, FileSource) and budget is not None:
            assert source.pages.held <= budget
        return made

    said: list[int] = []
    feed = Feed(dataset, case.options, case.epochs, budget, inline, said.append)
    sent: list[Planned] = []
    error = ""
    try:
        await feed.open()
        send, receive = anyio.create_memory_object_stream[Planned](0)
        async with receive, anyio.create_task_group() as group:
            group.start_soon(feed.read_ahead)
            group.start_soon(feed.send, send)
            async for planned in receive:
                sent.append(planned)
        ids = feed.ids
        await feed.close()
    except UsageError as refused:
        error, ids = str(refused), []
    assert len(said) <= 1
    return sent, ids, said[0] if said else None, error


def same(one: Played, other: Played) -> None:
    assert other[3] == one[3]
    assert [(p.index, p.epoch, p.sample) for p in other[0]] == [(p.index, p.epoch, p.sample) for p in one[0]]
    assert [[type(value) for value in p.sample.metadata or {}] for p in other[0]] == [
        [type(value) for value in p.sample.metadata or {}] for p in one[0]
    ]
    assert other[1:] == one[1:]


@settings(max_examples=EXAMPLES * 2)
@given(case=plain_cases | cases)
def test_42_a_file_read_under_any_budget_gives_the_same_samples_in_the_same_order(backend: str, case: Case) -> None:
    expected = run_virtual(backend, play, as_list(case), case, None)
    oracle = by_hand(case)
    if oracle is None:
        assert expected[3]
        assert not expected[0]
    else:
        same(oracle, expected)
    for budget in (None, case.budget):
        same(expected, run_virtual(backend, play, StreamedDataset(reading(case)), case, budget))


@settings(max_examples=EXAMPLES)
@given(case=plain_cases | cases)
def test_42_an_iterable_gives_the_same_samples_to_every_run(backend: str, case: Case) -> None:
    case = evolve(case, shuffle=None, choices=None, first=None)

    async def generated() -> AsyncIterator[Sample]:
        for sample in case.samples:
            await checkpoint()
            yield sample

    async def twice(dataset: IterableDataset) -> list[Played]:
        found: list[Played] = []

        async def once(budget: int | None) -> None:
            found.append(await play(dataset, case, budget))

        async with anyio.create_task_group() as group:
            group.start_soon(once, None)
            group.start_soon(once, case.budget)
        return found

    expected = run_virtual(backend, play, as_list(case), case, None)
    for given_by in (iter(case.samples), generated()):
        for played in run_virtual(backend, twice, IterableDataset(given_by)):
            same(expected, played)


@settings(max_examples=EXAMPLES)
@given(found=st.lists(samples, max_size=15), budget=st.sampled_from([1, 100, 10_000]))
def test_42_an_id_that_comes_twice_is_found_with_paging_too(backend: str, found: list[Sample], budget: int) -> None:
    case = Case(found, None, None, None, EvalOptions(), 1, budget)
    expected = run_virtual(backend, play, as_list(case), case, None)
    paged = run_virtual(backend, play_alone, StreamedDataset(reading(case)), case, budget)
    assert paged[3] == expected[3]
    if not expected[3]:
        same(expected, paged)


async def play_alone(dataset: Dataset, case: Case, budget: int | None) -> Played:
    """As `play`, with the error out of the task group that it ended."""
    try:
        return await play(dataset, case, budget)
    except BaseExceptionGroup as group:
        errors = {str(error) for error in leaves(group)}
        assert len(errors) == 1
        return [], [], None, errors.pop()


def leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]
