from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def penstock(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def test_init_writes_a_project_that_is_valid_and_says_what_to_do_next(tmp_path: Path) -> None:
    done = penstock("init", "my shop", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    for step in (
        "cd 'my shop'",
        "penstock kafka start",
        "penstock generate orders",
        "penstock run --once",
        "penstock verify",
    ):
        assert step in done.stdout
    assert sorted(path.name for path in (tmp_path / "my shop").iterdir()) == [".gitignore", "README.md", "penstock.yml"]
    assert "name: my-shop" in (tmp_path / "my shop" / "penstock.yml").read_text()
    checked = penstock("validate", "-C", "my shop", folder=tmp_path)
    assert "is valid: 1 table from 1 topic" in checked.stdout


def test_the_commented_parts_of_the_written_project_are_valid_too(tmp_path: Path) -> None:
    penstock("init", ".", folder=tmp_path)
    file = tmp_path / "penstock.yml"
    text = file.read_text()
    for key in ("security", "  protocol", "  mechanism", "  username", "  password"):
        text = text.replace(f"  # {key}", f"  {key}")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "kafka").write_text("x")
    file.write_text(text.replace("${env:KAFKA_USER}", "${env:KAFKA_USER:-u}"))
    assert "SASL_SSL as u" in penstock("plan", folder=tmp_path).stdout


def test_init_overwrites_nothing_and_lists_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    done = penstock("init", ".", folder=tmp_path)
    assert done.returncode == 2
    assert "README.md" in done.stderr
    assert (tmp_path / "README.md").read_text() == "mine"
    assert not (tmp_path / "penstock.yml").exists()


def test_init_answers_in_json(tmp_path: Path) -> None:
    document = json.loads(penstock("init", "shop", "--json", folder=tmp_path).stdout)
    assert document["files"][0] == "shop/penstock.yml"


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = penstock("init", "file/shop", folder=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
