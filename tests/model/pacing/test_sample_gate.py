"""The gate: samples start when the model can use them, and no more than it will use by the time they are set up."""

from __future__ import annotations

from collections import Counter

from proctor.model.pacing import Gate


def open_gate() -> Gate:
    return Gate(lambda now: True)


def test_nobody_passes_while_the_model_has_no_use_for_another() -> None:
    gate = Gate(lambda now: now >= 5.0)
    gate.ask("task")
    assert gate.poll(4.9) == []
    assert len(gate.poll(5.0)) == 1
    assert gate.waiting == 0


def test_four_may_be_setting_up_before_anything_is_known() -> None:
    gate = open_gate()
    for _ in range(10):
        gate.ask("task")
    assert len(gate.poll(0.0)) == 4
    assert gate.poll(100.0) == []


def test_one_that_queues_its_first_call_or_ends_makes_room_for_another() -> None:
    gate = open_gate()
    for _ in range(10):
        gate.ask("task")
    first, second, *_ = gate.poll(0.0)
    gate.queued(first, 1.0)
    gate.queued(first, 2.0)  # further calls of it change nothing
    gate.ended(second)
    assert gate.expected == 2
    assert len(gate.poll(2.0)) == 2


def test_twice_as_many_may_set_up_as_calls_are_sent_in_a_set_up() -> None:
    gate = open_gate()
    for _ in range(100):
        gate.ask("task")
    for entrant in gate.poll(0.0):
        gate.queued(entrant, 20.0)
    for number in range(40):
        gate.sent(20.0 + number / 2)
    assert gate.set_up == 20.0
    assert gate.most_expected(39.5) == 80
    assert len(gate.poll(39.5)) == 80
    assert gate.most_expected(49.6) == 40  # sends before the last set-up are forgotten


def test_feeds_take_turns_by_weight() -> None:
    gate = open_gate()
    for _ in range(60):
        gate.ask("light", weight=1.0)
        gate.ask("heavy", weight=2.0)
    passed: Counter[object] = Counter()
    for _ in range(15):
        for entrant in gate.poll(0.0):
            passed[entrant.feed.group] += 1
            gate.queued(entrant, 0.0)
    assert passed["heavy"] == 2 * passed["light"]


def test_a_feed_that_comes_late_has_no_credit() -> None:
    gate = open_gate()
    for _ in range(40):
        gate.ask("early")
    for _ in range(5):
        for entrant in gate.poll(0.0):
            gate.queued(entrant, 0.0)
    for _ in range(40):
        gate.ask("late")
    passed = [entrant.feed.group for entrant in gate.poll(0.0)]
    assert sorted(passed) == ["early", "early", "late", "late"]


def test_a_sample_that_stops_waiting_does_not_pass() -> None:
    gate = open_gate()
    gone, stays = gate.ask("task"), gate.ask("task")
    gate.withdraw(gone)
    assert gate.poll(0.0) == [stays]


def test_a_task_has_at_most_four_thousand_running() -> None:
    gate = open_gate()
    for _ in range(4100):
        gate.ask("task")
    passed = 0
    while entrants := gate.poll(0.0):
        passed += len(entrants)
        for entrant in entrants:
            gate.queued(entrant, 0.0)
    assert passed == 4000


def test_a_feed_that_has_ended_leaves_nothing() -> None:
    gate = Gate(lambda now: True)
    for number in range(5):
        entrant = gate.ask(f"task {number}")
        assert gate.poll(float(number)) == [entrant]
        gate.queued(entrant, number + 0.5)
        gate.sent(number + 0.5)
        gate.ended(entrant)
        assert not gate.used
        assert (gate.expected, gate.waiting, len(gate._sends)) == (0, 0, 0)


def test_a_feed_whose_other_models_have_no_room_waits_and_lets_others_pass() -> None:
    room = False
    gate = Gate(lambda now: True)
    held, free = gate.ask("held", open_too=lambda now: room), gate.ask("free")
    assert gate.poll(0.0) == [free]
    room = True
    assert gate.poll(1.0) == [held]


def test_samples_that_end_without_a_call_are_started_by_the_processors() -> None:
    gate = Gate(lambda now: True, 3)
    entrants = [gate.ask("task") for _ in range(50)]
    first = gate.poll(0.0)
    assert first == entrants[:4]
    for entrant in first:
        gate.ended(entrant)
    passed = gate.poll(1.0)
    assert len(passed) == 12
    gate.queued(passed[0], 2.0)
    assert gate.most_expected(2.0) == 4, "a sample calls the model after all"
