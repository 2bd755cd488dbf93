"""The wheel: built, installed alone into a fresh environment, and used from an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]

TASK = """\
from proctor import Task, task
from proctor.dataset import Sample
from proctor.scorer import includes

@task
def greeting() -> Task:
    return Task([Sample("hello", target="Default")], scorer=includes())
"""


def run(*command: object, cwd: Path, code: int = 0) -> str:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PROCTOR_", "INSPECT_", "PYTHON"))}
    done = subprocess.run(
        [str(each) for each in command], cwd=cwd, env=clean, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(
        sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "-q", "--no-deps", "-w", folder, ROOT,
        cwd=folder,
    )  # fmt: skip
    [built] = folder.glob("proctor-*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel; what it depends on is borrowed from this one, proctor itself is not."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=True, symlinks=True)
    made = folder / "bin" / "python"
    run(made, "-m", "pip", "install", "--disable-pip-version-check", "-q", "--no-deps", "--no-index", wheel, cwd=folder)
    site = run(made, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    (Path(site) / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return made


def test_the_wheel_holds_the_package_its_types_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "proctor/py.typed" in names
    assert "proctor/model/providers/llama_child.py" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"proctor"}
    assert not [name for name in names if "__pycache__" in name or "_cache/" in name]
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_it_runs_from_an_empty_folder(python: Path, tmp_path: Path) -> None:
    where = run(python, "-c", "import proctor; print(proctor.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(python.parents[1])
    proctor = python.parent / "proctor"
    version = run(proctor, "--version", cwd=tmp_path)
    assert version == run(python, "-m", "proctor", "--version", cwd=tmp_path)
    assert version.startswith("proctor 0.")
    assert "Commands:" in run(python, "-m", "proctor", "--help", cwd=tmp_path)
    (tmp_path / "greeting.py").write_text(TASK)
    out = run(proctor, "eval", "greeting.py", "--model", "mock/any", "--display", "plain", cwd=tmp_path)
    assert "1.000" in out
    assert len(list(tmp_path.glob("logs/*.eval"))) == 1
    assert "success" in run(proctor, "log", "show", *tmp_path.glob("logs/*.eval"), cwd=tmp_path)


def test_a_type_checker_sees_its_types(python: Path, tmp_path: Path) -> None:
    (tmp_path / "greeting.py").write_text(TASK)
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), "greeting.py"]
    assert "Success" in run(*command, cwd=tmp_path)
    (tmp_path / "greeting.py").write_text(TASK.replace('"hello"', "7"))
    assert "incompatible type" in run(*command, cwd=tmp_path, code=1)


@pytest.mark.parametrize(
    ("shell", "words"), [("bash", "complete -o default"), ("zsh", "#compdef"), ("fish", "complete")]
)
def test_every_shell_has_its_completion(python: Path, tmp_path: Path, shell: str, words: str) -> None:
    assert words in run(python.parent / "proctor", "completion", shell, cwd=tmp_path)


def test_bash_completes_commands_and_flags(python: Path, tmp_path: Path) -> None:
    script = (
        f'PATH="{python.parent}:$PATH"; eval "$(proctor completion bash)"; COMP_WORDS=(proctor {{words}}); '
        "COMP_CWORD={position}; _proctor_completion proctor; echo ${COMPREPLY[@]}"
    )

    def completed(words: str) -> str:
        text = script.replace("{words}", words).replace("{position}", str(len(words.split())))
        return run("bash", "--norc", "-c", text, cwd=tmp_path).strip()

    assert completed("ev") == "eval eval-set"
    assert completed("eval --max-conn") == "--max-connections"
