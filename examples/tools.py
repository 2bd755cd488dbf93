"""A tool that lists a folder, and a task in which the model has to use it.

Run it::

    proctor eval examples/tools.py --model openai-api/SERVICE/MODEL
"""

from __future__ import annotations

from proctor import Task, task
from proctor.dataset import Sample
from proctor.scorer import includes
from proctor.solver import generate, use_tools
from proctor.tool import Tool, ToolError, tool
from proctor.util import subprocess


@tool
def list_files() -> Tool:
    async def execute(dir: str) -> str:
        """List the files in a directory.

        Args:
            dir: The directory.
        """
        result = await subprocess(["ls", dir])
        if not result.success:
            raise ToolError(result.stderr)
        return result.stdout

    return execute


@task
def files(dir: str = ".", question: str = "Is there a file called README.md in {dir}?", target: str = "Yes") -> Task:
    """One question about a directory, which the model can answer when it has looked."""
    return Task(
        dataset=[Sample(input=question.format(dir=dir), target=target)],
        solver=[use_tools(list_files()), generate()],
        scorer=includes(),
    )
