"""The evaluation engine: tasks, plans, runs, results."""

from __future__ import annotations

from proctor.evaluation.api import eval, eval_async
from proctor.evaluation.load import TaskInfo, list_tasks
from proctor.evaluation.report import PlanReport, plan_report
from proctor.evaluation.task import Epochs, Task, task, task_with

__all__ = [
    "Epochs",
    "PlanReport",
    "Task",
    "TaskInfo",
    "eval",
    "eval_async",
    "list_tasks",
    "plan_report",
    "task",
    "task_with",
]
