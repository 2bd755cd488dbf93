"""Scorers, metrics and reducers against `inspect_ai`'s, on generated cases: a ported evaluation must score the same.

Where ours differ on purpose, the test says so.
"""

# ruff: noqa: E501, RUF001  # tables of words, some of which look alike on purpose

from __future__ import annotations

import itertools
import math
import random
import warnings
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import inspect_ai._eval.task.results as their_results
    import inspect_ai.scorer as theirs
    import inspect_ai.scorer._reducer.registry as their_reducers
    from inspect_ai.model import ModelName as TheirModelName
    from inspect_ai.model import ModelOutput as TheirOutput
    from inspect_ai.solver import MultipleChoiceTemplate as TheirTemplate
    from inspect_ai.solver import TaskState as TheirState
    from inspect_ai.solver._multiple_choice import parse_answers as their_parse_answers

import proctor.scorer as ours
from proctor.model import ModelOutput
from proctor.scorer.intervals import t_quantile
from proctor.scorer.numerals import number_in
from proctor.scorer.reducers import as_reducer, reduce_samples, reducer_name
from proctor.scorer.results import ScorerInfo, compute_metrics, scorer_results
from proctor.solver import TaskState
from proctor.solver.lettered import selected_letters

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

WORDS = [
    "42", "-42", "4.2", "42.", "42!", "(42)", "$42", "\\$42", "1,000", "1000", "**42**", "_42_", "60%", "1e3", "0.5", "½", "2½",
    "−7", "－7", "3²", "10⁻²", "-2²", "十二", "三千二百万", "二〇二五", "三点五", "廿五", "１２３", "٤٢", "Ⅻ", "①", "1①", "nan", "inf", "-", "+",
    "x", "yes", "Yes.", "the", "A", "a)", "ANSWER:", "answer: b", "ANSWER: 42", "<42", "~42", "42\n", "\n", ".", "…", "", "5 000",
    "1.234.567", "12.5.", "0042", "42.0", "41.99999999", "straße", "STRASSE", "e5", "5e", "2e+3", "1_000", "'42'", "4²³⁴⁵⁶⁷⁸⁹",
    "十⅓", "½½", "2½x", "正五", "负三", "--3", "＋8", "8 ⁺²", "£3.50", "€9", "\u200b7", "7\u00a0000", "0", "-0", "⁵", "零", "百", "一百零五",
]  # fmt: skip


def state_of(completion: str, **fields: Any) -> TaskState:
    return TaskState(
        model="mock/model",
        sample_id=1,
        epoch=1,
        input="question",
        messages=[],
        output=ModelOutput.from_content("mock", completion),
        **fields,
    )


def their_state_of(completion: str, **fields: Any) -> TheirState:
    return TheirState(
        model=TheirModelName("mock/model"),
        sample_id=1,
        epoch=1,
        input="question",
        messages=[],
        output=TheirOutput.from_content("mock", completion),
        **fields,
    )


def now(awaitable: Any) -> Any:
    """The result of a coroutine that never waits."""
    try:
        awaitable.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waited")


def fields_of(score: Any) -> tuple[Any, ...]:
    return score.value, score.answer, score.reason


def outcome(call: Any) -> Any:
    """What a call gives, or that it failed."""
    try:
        return call()
    except (ValueError, TypeError, KeyError) as error:
        return "failed", error.__class__ in {ValueError, TypeError, KeyError}


def texts(seed: int, count: int) -> list[str]:
    chance = random.Random(seed)
    separators = [" ", " ", "  ", "\n", ", ", ". ", "-", ""]
    return [
        "".join(chance.choice(WORDS) + chance.choice(separators) for _ in range(chance.randint(0, 5)))
        for _ in range(count)
    ]


def assert_same_scores(mine: Any, their: Any, completions: list[str], targets: list[Any]) -> None:
    compared = 0
    for completion, target in zip(completions, targets, strict=True):
        my_score = now(mine(state_of(completion), ours.Target(target)))
        their_score = now(their(their_state_of(completion), theirs.Target(target)))
        assert fields_of(my_score) == fields_of(their_score), (completion, target)
        compared += 1
    assert compared > 100


@pytest.mark.parametrize("numeric", [False, True])
@pytest.mark.parametrize("ignore_case", [False, True])
@pytest.mark.parametrize("location", ["begin", "end", "any", "exact"])
def test_match_scores_as_theirs(location: Any, ignore_case: bool, numeric: bool) -> None:
    seed = f"{location}{ignore_case}{numeric}"
    completions = texts(len(seed), 1500)
    chance = random.Random(seed)
    targets = [
        chance.choice([chance.choice(WORDS), completion, completion[-3:], completion[:3], [chance.choice(WORDS), "42"]])
        for completion in completions
    ]
    options = {"location": location, "ignore_case": ignore_case, "numeric": numeric}
    assert_same_scores(ours.match(**options), theirs.match(**options), completions, targets)


@pytest.mark.parametrize("location", ["begin", "end", "any", "exact"])
def test_numbers_match_numbers_as_theirs(location: Any) -> None:
    pairs = list(itertools.product(WORDS, WORDS))
    options = {"location": location, "numeric": True}
    assert_same_scores(
        ours.match(**options), theirs.match(**options), [f"it is {a}" for a, _ in pairs], [b for _, b in pairs]
    )


def test_numerals_are_read_as_theirs() -> None:
    from inspect_ai.scorer._common import _parse_number

    chance = random.Random(7)
    alphabet = "0123456789.eE+-−－ ½⅓²³⁻⁺一二三十百千万亿零〇点廿１２٤Ⅻ①,'!()x"
    seen = 0
    for _ in range(40_000):
        word = "".join(chance.choice(alphabet) for _ in range(chance.randint(1, 6))).replace(",", "")
        for trim in (True, False):
            their = _parse_number(word, trim_punctuation=trim)
            mine = number_in(word, trim=trim)
            assert (mine is None) == (their is None), (word, mine, their)
            assert their is None or mine == pytest.approx(their, rel=1e-9), (word, mine, their)
            seen += their is not None
    assert seen > 5_000


@pytest.mark.parametrize("ignore_case", [False, True])
def test_includes_scores_as_theirs(ignore_case: bool) -> None:
    completions = texts(11, 800)
    chance = random.Random(3)
    targets = [chance.choice([chance.choice(WORDS), text[1:4]]) for text in completions]
    assert_same_scores(ours.includes(ignore_case), theirs.includes(ignore_case), completions, targets)


@pytest.mark.parametrize(
    "expression",
    [r"(\d+)", r"(\d+)?(x)?", r"\d+", r"(.*)", r"ANSWER: (\S+)", r"(\w+)\W+(\w+)", r"(?s)(a|the)(.*)", r"zzz"],
)
@pytest.mark.parametrize("match_all", [False, True])
@pytest.mark.parametrize("ignore_case", [False, True])
def test_pattern_scores_as_theirs(expression: str, match_all: bool, ignore_case: bool) -> None:
    completions = texts(5, 300)
    chance = random.Random(9)
    targets = [chance.choice([chance.choice(WORDS), text, "a", ["42", "A", "x"]]) for text in completions]
    assert_same_scores(
        ours.pattern(expression, ignore_case, match_all),
        theirs.pattern(expression, ignore_case, match_all),
        completions,
        targets,
    )


def answers(seed: int, count: int) -> list[str]:
    chance = random.Random(seed)
    parts = ["ANSWER: ", "answer :", "ANSWER:\n", "A", "b", "AB", "A, B", "(C)", "**D**", "$A$", "B.", "C,", " and ", "E", "1", "\n", " ", "foo",
             "yes", "Yes!", "Paris, France", "\n\n", ".", "A.B", "ANSWER: A\nANSWER: B", "the ANSWER: c then", "( a )", "**A, B**", ",", "AND"]  # fmt: skip
    return ["".join(chance.choice(parts) for _ in range(chance.randint(1, 7))) for _ in range(count)]


@pytest.mark.parametrize("pattern", ["letter", "word", "line"])
def test_answer_scores_as_theirs(pattern: Any) -> None:
    completions = answers(13, 2_000)
    chance = random.Random(4)
    targets = [
        chance.choice(["A", "B", "yes", "Paris, France", text[-1:], text.rpartition(":")[2]]) for text in completions
    ]
    assert_same_scores(ours.answer(pattern), theirs.answer(pattern), completions, targets)


@pytest.mark.parametrize("multiple", [False, True])
@pytest.mark.parametrize("count", [2, 4, 28])
def test_selected_letters_are_read_as_theirs(multiple: bool, count: int) -> None:
    choices = [str(n) for n in range(count)]
    found = 0
    for completion in answers(count, 3_000):
        state = their_state_of(completion, choices=choices)
        letters = state_of(completion, choices=choices).choices.letters()
        mine = selected_letters(completion, letters, multiple_correct=multiple)
        assert mine == their_parse_answers(state, multiple), completion
        found += bool(mine)
    assert found > 100


def test_templates_have_the_places_of_theirs() -> None:
    from proctor.solver import MultipleChoiceTemplate

    for template in TheirTemplate:
        mine = MultipleChoiceTemplate[template.name].value
        for place in ("{question}", "{choices}", "{letters}", "ANSWER: $LETTER"):
            assert (place in mine) == (place in template.value)


def test_exact_and_f1_score_as_theirs() -> None:
    completions = [*texts(21, 1_500), *answers(22, 500)]
    chance = random.Random(5)
    targets = [
        chance.choice([text, text[: len(text) // 2], chance.choice(WORDS), [text.upper(), "the"], ["a", "an"]])
        for text in completions
    ]
    assert_same_scores(ours.exact(), theirs.exact(), completions, targets)
    assert_same_scores(ours.f1(), theirs.f1(), completions, targets)
    stop = ["x", "42", "Yes", "the"]
    assert_same_scores(ours.f1(stop_words=stop), theirs.f1(stop_words=stop), completions, targets)
    assert_same_scores(ours.f1(lambda text: text[2:]), theirs.f1(lambda text: text[2:]), completions, targets)


@pytest.mark.parametrize("shuffled", [False, True])
def test_choice_scores_as_theirs(shuffled: bool) -> None:
    chance = random.Random(6)
    for _ in range(400):
        count = chance.choice([2, 4, 28])
        choices = [f"choice {n}" for n in range(count)]
        completion = chance.choice(["", "  ", "ANSWER: A", "no idea"])
        target = chance.choice(["A", "B", "a", "A,B", "AB", ["A", "B"], "2", "b a", "Z", "0"])
        marks = [chance.choice([True, False, None]) for _ in range(count)] if chance.random() < 0.7 else [None] * count
        mine, their = state_of(completion, choices=choices), their_state_of(completion, choices=choices)
        if shuffled:
            seed = chance.random()
            mine.choices.shuffle(random.Random(seed))
            their.choices.shuffle(random.Random(seed))
        for place, mark in enumerate(marks):
            if mark is not None:
                mine.choices.mark_choice(place, mark)
                their.choices.mark_choice(place, mark)
        if chance.random() < 0.3 and target == "A" and not shuffled:
            for place in range(count):
                mine.choices.mark_choice(place, place == 0)
                their.choices.mark_choice(place, place == 0)
        my_score = outcome(lambda: fields_of(now(ours.choice()(mine, ours.Target(target)))))  # noqa: B023
        their_score = outcome(lambda: fields_of(now(theirs.choice()(their, theirs.Target(target)))))  # noqa: B023
        assert my_score == their_score


def test_values_become_numbers_as_theirs() -> None:
    values: list[Any] = ["C", "I", "P", "N", "c", "yes", "YES", "no", "True", "false", "1", "0.5", "1e3", "nan", "inf", "", "x", 1, 0, -3, 2.5,
                         True, False, [1], {"a": 1}, math.inf]  # fmt: skip
    assert [ours.value_to_float()(value) for value in values] == [theirs.value_to_float()(value) for value in values]
    custom: dict[str, Any] = {"correct": 3, "incorrect": "bad", "partial": 2, "noanswer": -1}
    values += [3, "bad", 2, -1, 3.0]
    assert [ours.value_to_float(**custom)(v) for v in values] == [theirs.value_to_float(**custom)(v) for v in values]


def score_lists(seed: int, count: int, values: list[Any]) -> list[list[tuple[Any, dict[str, Any]]]]:
    chance = random.Random(seed)
    lists = []
    for _ in range(count):
        size = chance.choice([0, 1, 2, 3, 5, 20, 300])
        lists.append([(chance.choice(values), {"group": chance.choice("abc"), "n": n}) for n in range(size)])
    return lists


def both(values: list[tuple[Any, dict[str, Any]]]) -> tuple[list[Any], list[Any]]:
    mine = [
        ours.SampleScore(score=ours.Score(value=value), sample_id=n, sample_metadata=metadata)
        for n, (value, metadata) in enumerate(values)
    ]
    their = [
        theirs.SampleScore(score=theirs.Score(value=value), sample_id=n, sample_metadata=metadata)
        for n, (value, metadata) in enumerate(values)
    ]
    return mine, their


def plain(value: Any) -> Any:
    return {key: float(item) for key, item in value.items()} if isinstance(value, dict) else float(value)


METRICS: dict[str, Any] = {
    "accuracy": lambda of: of.accuracy(),
    "accuracy with own numbers": lambda of: of.accuracy(of.value_to_float(correct="P", partial="C")),
    "mean": lambda of: of.mean(),
    "var": lambda of: of.var(),
    "std": lambda of: of.std(),
    "stderr": lambda of: of.stderr(),
    "stderr by cluster": lambda of: of.stderr(cluster="group"),
    "ci": lambda of: of.ci(),
    "ci 0.5": lambda of: of.ci(level=0.5),
    "ci by cluster": lambda of: of.ci(0.99, cluster="group"),
    "grouped": lambda of: of.grouped(of.mean(), "group"),
    "grouped, groups": lambda of: of.grouped(of.accuracy(), "group", all="groups", all_label="total"),
    "grouped, no whole": lambda of: of.grouped(of.std(), "group", all=False, name_template="g-{group_name}"),
}


@pytest.mark.parametrize("name", METRICS)
def test_metrics_are_theirs(name: str) -> None:
    mine, their = METRICS[name](ours), METRICS[name](theirs)
    for values in score_lists(17, 60, ["C", "I", "P", "N", 0.25, 1, 0, True, "0.75", 100.0]):
        my_scores, their_scores = both(values)
        expected = plain(their(their_scores))
        assert plain(mine(my_scores)) == pytest.approx(expected, rel=1e-9, abs=1e-12, nan_ok=True), values


def test_a_cluster_that_a_sample_does_not_name_is_refused_as_theirs() -> None:
    my_scores, their_scores = both([(1, {"group": "a"}), (0, {})])
    for of, scores in ((ours, my_scores), (theirs, their_scores)):
        for made in (of.stderr(cluster="group"), of.ci(cluster="group"), of.grouped(of.mean(), "group")):
            with pytest.raises(ValueError, match="group"):
                made(scores)


@pytest.mark.parametrize("missing", ["error", "skip", "zero"])
def test_aggregate_is_theirs(missing: Any) -> None:
    values = [{"a": 1.0}, {"a": 0.5, "b": 2}, {"b": 1}, {"a": None}, {"a": math.nan}, math.nan, {"a": "C"}]
    for chosen in itertools.chain.from_iterable(itertools.combinations(values, n) for n in range(1, 5)):
        my_scores, their_scores = both([(value, {}) for value in chosen])
        mine = outcome(lambda: ours.aggregate("a", ours.mean(), on_missing=missing)(my_scores))  # noqa: B023
        their = outcome(lambda: theirs.aggregate("a", theirs.mean(), on_missing=missing)(their_scores))  # noqa: B023
        assert mine == pytest.approx(their, nan_ok=True) if isinstance(mine, float) else mine == their


def test_bootstrapped_errors_are_close_to_theirs() -> None:
    my_scores, their_scores = both([(n % 7, {"group": n % 10}) for n in range(100)])
    assert ours.bootstrap_stderr()(my_scores) == pytest.approx(theirs.bootstrap_stderr()(their_scores), rel=0.15)
    for cluster in (None, "group"):
        mine: Any = ours.ci(method="bootstrap", cluster=cluster)(my_scores)
        their: Any = theirs.ci(method="bootstrap", cluster=cluster)(their_scores)
        assert mine == pytest.approx(their, rel=0.1)


def test_t_quantiles_are_theirs() -> None:
    from inspect_ai.scorer._metrics.std import _t_inv_cdf

    for freedom in (1, 2, 3, 4, 5, 8, 13, 30, 99, 200, 399, 400, 401, 1_000, 50_000):
        for probability in (0.5, 0.6, 0.75, 0.9, 0.95, 0.975, 0.99, 0.995, 0.9999, 0.1, 0.025):
            assert t_quantile(probability, freedom) == pytest.approx(
                _t_inv_cdf(probability, freedom), rel=1e-8, abs=1e-9
            )


REDUCERS = ["mean", "median", "mode", "majority", "max", "collect", "at_least_1", "at_least_2", "pass_at_1", "pass_at_3", "pass_k_2"]  # fmt: skip
KINDS: dict[str, list[Any]] = {
    "grades": ["C", "I", "P", "N", math.nan],
    "numbers": [0, 1, 0.5, True, "1", math.nan, 2],
    "dicts": [{"a": 1, "b": "C"}, {"a": 0, "b": "I"}, {"a": math.nan, "b": "P"}, {"a": None, "b": 1}, math.nan],
    "lists": [[1, "C"], [0, "I"], [math.nan, "P"], math.nan],
    "unlike": [{"a": 1}, {"a": 1, "b": 2}, [1], [1, 2], 1, "C", math.nan],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", REDUCERS)
def test_reducers_are_theirs(name: str, kind: str) -> None:
    mine, their = as_reducer(name), their_reducers.create_reducers(name)[0]
    assert reducer_name(mine) == their_reducers.reducer_log_name(their)
    chance = random.Random(f"{name}{kind}")
    for _ in range(150):
        epochs = [
            {
                "value": chance.choice(KINDS[kind]),
                "answer": chance.choice(["a", "a", "b", None]),
                "explanation": chance.choice(["e", "e", "f"]),
                "reason": chance.choice([None, None, "refusal"]),
                "metadata": chance.choice([None, {"k": 1}]),
            }
            for _ in range(chance.randint(1, 5))
        ]
        my_score = outcome(lambda: mine([ours.Score(**fields) for fields in epochs]))  # noqa: B023
        their_score = outcome(lambda: their([theirs.Score(**fields) for fields in epochs]))  # noqa: B023
        scored = [fields["value"] for fields in epochs if not same(fields["value"], math.nan)]
        if (
            scored
            and any(isinstance(value, (dict, list)) for value in scored)
            and not isinstance(scored[0], (dict, list))
        ):
            # Theirs counts a dict among numbers as 0, with a warning; ours says that they cannot be reduced.
            assert my_score == ("failed", True)
            continue
        if isinstance(my_score, tuple) or isinstance(their_score, tuple):
            assert my_score == their_score, epochs
            continue
        assert same(my_score.value, their_score.value), (epochs, my_score, their_score)
        for field in ("answer", "explanation", "reason"):
            assert getattr(my_score, field) == getattr(their_score, field)
        assert same(my_score.metadata, their_score.metadata), epochs


def same(mine: Any, their: Any) -> bool:
    if isinstance(mine, dict) and isinstance(their, dict):
        return mine.keys() == their.keys() and all(same(mine[key], their[key]) for key in mine)
    if isinstance(mine, list) and isinstance(their, list):
        return len(mine) == len(their) and all(map(same, mine, their))
    if isinstance(mine, float) and isinstance(their, (int, float)) and math.isnan(mine):
        return math.isnan(their)
    if isinstance(mine, (int, float)) and isinstance(their, (int, float)):
        return bool(mine == pytest.approx(their))
    return bool(mine == their)


LAYOUTS: dict[str, Any] = {
    "a list": (["C", "I", 0.5, math.nan], lambda of: [of.accuracy(), of.stderr(), of.mean(), of.mean()]),
    "parts": ([0, 1, 0.5], lambda of: [of.ci(), of.grouped(of.mean(), "group"), of.grouped(of.std(), "group")]),
    "by key": (
        [{"a": 1, "b": "C"}, {"a": 0, "b": "I"}, {"a": math.nan, "b": "P"}, math.nan],
        lambda of: {"a": [of.mean(), of.ci()], "b": [of.accuracy()]},
    ),
    "by pattern": (
        [{"a1": 1, "a2": 0, "b": 1}, {"a1": 0.5, "a2": 1, "b": 0}],
        lambda of: {"a*": [of.mean(), of.std()], "*": [of.mean()]},
    ),
    "both": ([{"a": 1, "b": 2}, {"a": 3, "b": 4}], lambda of: [of.aggregate("a", of.mean()), {"b": [of.mean()]}]),
    "nothing scored": ([math.nan], lambda of: [of.accuracy(), of.stderr(), of.grouped(of.mean(), "group")]),
}


@pytest.mark.parametrize("reducers", [None, ["mean"], ["mode", "max"], []])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_results_are_theirs(layout: str, reducers: list[str] | None) -> None:
    values, make = LAYOUTS[layout]
    chance = random.Random(layout)
    epochs = [(n, chance.choice(values), {"group": "xyz"[n % 3]}) for n in range(40) for _ in range(3)]
    mine = [
        ours.SampleScore(score=ours.Score(value=value), sample_id=n, sample_metadata=metadata)
        for n, value, metadata in epochs
    ]
    their = [
        theirs.SampleScore(score=theirs.Score(value=value), sample_id=n, sample_metadata=metadata)
        for n, value, metadata in epochs
    ]
    info = their_results.ScorerInfo(name="judge", metrics=make(theirs), params={"p": 1}, metadata={"m": 2})
    expected, expected_reductions = their_results.compute_eval_scores_for_views(
        their, make(theirs), "judge", info, their_reducers.create_reducers(reducers)
    )
    results, reductions = scorer_results(
        mine,
        make(ours),
        None if reducers is None else [as_reducer(name) for name in reducers],
        ScorerInfo(name="judge", params={"p": 1}, metadata={"m": 2}),
    )
    assert len(results) == len(expected)
    for result, other in zip(results, expected, strict=True):
        for field in ("name", "scorer", "reducer", "scored_samples", "unscored_samples", "params", "metadata"):
            assert getattr(result, field) == getattr(other, field), field
        assert list(result.metrics) == list(other.metrics)
        for name, metric in result.metrics.items():
            assert same(float(metric.value), float(other.metrics[name].value)), name
            assert metric.group == other.metrics[name].group
            assert metric.name == other.metrics[name].name
    assert [(r.scorer, r.reducer, len(r.samples)) for r in reductions] == [
        (r.scorer, r.reducer, len(r.samples)) for r in expected_reductions
    ]
    for reduction, other_reduction in zip(reductions, expected_reductions, strict=True):
        for sample, other_sample in zip(reduction.samples, other_reduction.samples, strict=True):
            assert sample.sample_id == other_sample.sample_id
            assert same(sample.value, other_sample.value)


def test_a_task_that_reduces_by_default_gives_metrics_numbers_as_theirs() -> None:
    my_scores, their_scores = both([("C", {}), ("I", {})])
    reduced = [score.score.value for score in reduce_samples(my_scores, "mean")]
    assert reduced == [s.score.value for s in their_results.reduce_scores(their_scores, theirs.mean_score())]
    assert compute_metrics(reduce_samples(my_scores, "mean"), [ours.mean()]) == {"mean": 0.5}


@pytest.mark.parametrize("partial_credit", [False, True])
@pytest.mark.parametrize("instructions", [None, "Grade it as you like."])
def test_grades_are_read_as_theirs(instructions: str | None, partial_credit: bool) -> None:
    import inspect_ai.scorer._model as their_graded

    from proctor.scorer.graded import _Grading

    class Grader:
        def __init__(self, completion: str) -> None:
            self.completion = completion

        async def generate(self, input: Any) -> TheirOutput:
            return TheirOutput.from_content("m", self.completion)

    chance = random.Random(8)
    parts = ["GRADE: ", "grade:", "GRADE :\n", "Grade\u200b: ", "C", "I", "P", "c", "correct", "Incorrect", "partial", "CI", "X", ".", " ", "\n",
             "**", "downgrade: C", "GRADES: I", "'GRADE: C'", ""]  # fmt: skip
    grading = _Grading.of("{question}", instructions, None, False, partial_credit)
    found = 0
    original = their_graded.Model
    their_graded.Model = Grader  # type: ignore[misc,assignment]
    try:
        for _ in range(1_500):
            completion = "".join(chance.choice(parts) for _ in range(chance.randint(1, 7)))
            scorer: Any = their_graded._model_graded_qa_single(
                "{question}",
                instructions,
                None,
                False,
                partial_credit,
                Grader(completion),  # type: ignore[arg-type]
            )
            value = now(scorer(their_state_of("x"), theirs.Target("y"))).value
            assert grading.grade(completion) == (None if isinstance(value, float) else value), completion
            found += isinstance(value, str)
    finally:
        their_graded.Model = original  # type: ignore[misc]
    assert found > 100
