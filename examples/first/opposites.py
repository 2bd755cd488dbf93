"""Opposites of words. Where several answers are right, the target is a list.

Run it::

    proctor eval examples/first/opposites.py --model llama-cpp/smollm2
"""

from __future__ import annotations

from proctor import Task, task
from proctor.dataset import Sample
from proctor.model import GenerateConfig
from proctor.scorer import includes

OPPOSITES: dict[str, list[str]] = {
    "hot": ["cold"], "big": ["small", "little"], "up": ["down"], "happy": ["sad", "unhappy"], "fast": ["slow"],
    "light": ["dark", "heavy"], "day": ["night"], "open": ["closed", "shut"], "wet": ["dry"], "old": ["young", "new"],
    "full": ["empty"], "hard": ["soft", "easy"], "early": ["late"], "strong": ["weak"], "rich": ["poor"],
    "left": ["right"],
}  # fmt: skip


@task
def opposites() -> Task:
    """Correct when one of the opposites is in the answer."""
    return Task(
        dataset=[
            Sample(input=f"What is the opposite of {word}?", target=right, id=word) for word, right in OPPOSITES.items()
        ],
        scorer=includes(),
        config=GenerateConfig(temperature=0.0, max_tokens=20),
    )
