"""What a small model knows: the capitals of countries. A system message asks for short answers.

Run it::

    proctor eval examples/first/capitals.py --model llama-cpp/smollm2
"""

from __future__ import annotations

from proctor import Task, task
from proctor.dataset import Sample
from proctor.model import GenerateConfig
from proctor.scorer import includes
from proctor.solver import generate, system_message

CAPITALS = {
    "France": "Paris", "Italy": "Rome", "Japan": "Tokyo", "Germany": "Berlin", "Spain": "Madrid", "Egypt": "Cairo",
    "Norway": "Oslo", "Greece": "Athens", "Canada": "Ottawa", "Portugal": "Lisbon", "Poland": "Warsaw",
    "Austria": "Vienna", "Russia": "Moscow", "China": "Beijing", "Cuba": "Havana", "Ireland": "Dublin",
    "Peru": "Lima", "Kenya": "Nairobi",
}  # fmt: skip


@task
def capitals() -> Task:
    """Correct when the answer has the capital in it."""
    return Task(
        dataset=[
            Sample(input=f"What is the capital of {country}?", target=capital, id=country)
            for country, capital in CAPITALS.items()
        ],
        solver=[system_message("You are a helpful assistant. Answer in one short sentence."), generate()],
        scorer=includes(),
        config=GenerateConfig(temperature=0.0, max_tokens=20),
    )
