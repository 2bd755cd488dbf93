"""Displays: what a person sees of a running evaluation.

Each is a module with ``async def show(view: RunView) -> None``, registered under kind ``display``. It runs as a task
beside the evaluation, looks at counters that move anyway, and draws the results when the run has ended or when it is
cancelled.
"""
