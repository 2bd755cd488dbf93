"""Plurals of nouns. Two worked examples come before each question, as turns of the conversation.

Run it::

    proctor eval examples/first/plurals.py --model llama-cpp/smollm2
"""

from __future__ import annotations

from proctor import Task, task
from proctor.dataset import Sample
from proctor.model import ChatMessage, ChatMessageAssistant, ChatMessageUser, GenerateConfig
from proctor.scorer import match

PLURALS = {
    "cat": "cats", "dog": "dogs", "child": "children", "mouse": "mice", "box": "boxes", "foot": "feet",
    "city": "cities", "man": "men", "tooth": "teeth", "leaf": "leaves", "sheep": "sheep", "tomato": "tomatoes",
    "knife": "knives", "goose": "geese", "bus": "buses", "key": "keys",
}  # fmt: skip


def question(noun: str) -> ChatMessage:
    return ChatMessageUser(content=f"What is the plural of {noun}?")


def conversation(noun: str) -> list[ChatMessage]:
    """Two answered questions, then the one that counts."""
    return [
        question("book"),
        ChatMessageAssistant(content="books"),
        question("woman"),
        ChatMessageAssistant(content="women"),
        question(noun),
    ]


@task
def plurals() -> Task:
    """Correct when the answer begins with the plural."""
    return Task(
        dataset=[Sample(input=conversation(noun), target=plural, id=noun) for noun, plural in PLURALS.items()],
        scorer=match(location="begin"),
        config=GenerateConfig(temperature=0.0, max_tokens=8),
    )
