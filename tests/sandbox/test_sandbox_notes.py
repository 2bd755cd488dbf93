"""The notes of what lives outside, and the command that lists and removes what was left behind."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from proctor.cli.app import main
from proctor.sandbox.folders import remove_folder
from proctor.sandbox.owned import Note, notes_folder, orphans, read_notes, remove_note, start_of, write_note


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROCTOR_STATE_DIR", str(tmp_path / "state"))
    return tmp_path


def test_a_note_is_read_as_it_was_written_and_kept_private() -> None:
    note = Note(id="a", type="local", task="t", things={"folder": "/x"})
    write_note(note)
    assert read_notes() == [note]
    assert read_notes("docker") == []
    assert notes_folder().stat().st_mode & 0o077 == 0
    remove_note("a")
    remove_note("a")
    assert read_notes() == []


def test_a_note_is_orphaned_when_its_process_has_ended_or_another_has_its_number() -> None:
    alive = Note(id="a", type="local")
    again = Note(id="b", type="local", started="another boot/1")
    gone = Note(id="c", type="local", pid=2**22 + 1, started=start_of(os.getpid()))
    for each in (alive, again, gone):
        write_note(each)
    assert [note.id for note in orphans("local")] == ["b", "c"]
    assert [note.id for note in orphans("local", "c")] == ["c"]


def test_what_is_no_note_is_left_out() -> None:
    write_note(Note(id="a", type="local"))
    (notes_folder() / "b.json").write_text("{")
    (notes_folder() / "c.json").write_text('{"id": "c"}')
    assert [note.id for note in read_notes()] == ["a"]


async def test_a_folder_is_removed_whatever_its_permissions(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    (folder / "a/b").mkdir(parents=True)
    (folder / "a/b/c").write_text("x")
    (folder / "link").symlink_to(tmp_path)
    (tmp_path / "kept").write_text("x")
    for path in (folder / "a/b/c", folder / "a/b", folder / "a"):
        path.chmod(0)
    await remove_folder(folder)
    assert not folder.exists()
    assert (tmp_path / "kept").exists()
    await remove_folder(folder)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["sandbox", *arguments])
    said = capsys.readouterr()
    return code, said.out + said.err


def left_behind(tmp_path: Path, id: str) -> Path:
    folder = tmp_path / f"left-{id}"
    folder.mkdir()
    write_note(Note(id=id, type="local", task="t", started="another boot/1", things={"folder": str(folder)}))
    return folder


def test_sandboxes_are_listed_with_what_became_of_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(capsys, "list") == (0, "no sandboxes\n")
    left_behind(tmp_path, "a")
    write_note(Note(id="b", type="bubblewrap", task="t", things={"folder": "/y"}))
    code, said = run(capsys, "list")
    assert code == 0
    assert "a  local  left behind (its process has ended)  t" in said
    assert f"b  bubblewrap  in use (process {os.getpid()})  t" in said
    rows: list[dict[str, Any]] = json.loads(run(capsys, "list", "local", "--json")[1])
    assert [(row["id"], row["state"], row["folder"]) for row in rows] == [
        ("a", "left behind", str(tmp_path / "left-a"))
    ]


def test_only_what_was_left_behind_is_removed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    one, two = left_behind(tmp_path, "a"), left_behind(tmp_path, "b")
    used = tmp_path / "used"
    used.mkdir()
    write_note(Note(id="c", type="local", things={"folder": str(used)}))
    code, said = run(capsys, "cleanup", "local", "c")
    assert code == 2
    assert f"sandbox c is in use by process {os.getpid()}: end that run first" in said
    assert run(capsys, "cleanup", "local", "a") == (0, "1 removed\n")
    assert (one.exists(), two.exists()) == (False, True)
    assert run(capsys, "cleanup") == (0, "1 removed\n")
    assert (two.exists(), used.exists()) == (False, True)
    assert [note.id for note in read_notes()] == ["c"]


def test_an_unknown_type_or_id_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = run(capsys, "cleanup", "locl")
    assert code == 2
    assert "no sandbox is called 'locl'; did you mean local?" in said
    code, said = run(capsys, "cleanup", "local", "zzz")
    assert code == 2
    assert "no local sandbox zzz was left behind; there is none" in said
