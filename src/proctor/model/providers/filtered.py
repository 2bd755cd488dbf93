"""What is recorded of an answer that a vendor's filter stopped."""

from __future__ import annotations

from proctor.model.output import StopCategory, StopDetails


def filter_details(kind: str | None, explanation: str | None, categories: list[StopCategory]) -> StopDetails:
    """The details of a filtered answer: the first category by itself too, and a line of all where nothing was said."""
    listed = ", ".join(one.category + (f" ({one.level})" if one.level else "") for one in categories)
    return StopDetails(
        type=kind,
        category=categories[0].category if categories else None,
        explanation=explanation or (f"filtered for {listed}" if listed else None),
        categories=categories,
    )
