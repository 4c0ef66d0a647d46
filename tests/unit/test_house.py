"""Rules of the source tree that no other tool checks. The layers are checked by `make check`."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "penstock"


def test_class_names_are_unique() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(file.relative_to(SOURCE)))
    assert {name: files for name, files in found.items() if len(files) > 1} == {}


def test_one_module_is_the_bridge_to_the_jvm() -> None:
    """`self._jvm` is a field that holds what the bridge gave."""
    inner = re.compile(r"(?<!self)\.(_jvm|_jdf|_jc|_jsc|_jsparkSession|_jreader|_gateway)\b")
    bridge = {"spark/jvm.py", "spark/gateway.py"}  # the second starts and ends the JVM itself
    found = {str(file.relative_to(SOURCE)) for file in SOURCE.rglob("*.py") if inner.search(file.read_text())}
    assert found == bridge


def test_one_module_of_the_command_line_opens_sessions() -> None:
    """Views print, and start nothing. In `demo` the session is the verb."""
    found = {file.name for file in (SOURCE / "cli").glob("*.py") if "spark_session" in file.read_text()}
    assert found == {"session.py", "demo.py"}


def test_every_module_says_what_it_is() -> None:
    modules = [file for file in SOURCE.rglob("*.py") if file.name not in ("__init__.py", "__main__.py")]
    assert [str(file) for file in modules if ast.get_docstring(ast.parse(file.read_text())) is None] == []


def test_java_sources_have_one_format() -> None:
    """Four spaces a block, eight for what continues a line, 120 columns; no formatter has to be fetched for that."""
    faults = []
    for file in sorted(SOURCE.rglob("*.java")):
        text = file.read_text(encoding="utf-8")
        if not text.endswith("}\n"):
            faults.append(f"{file.name}: does not end with a brace and one newline")
        lines, before = text.splitlines(), ""
        for number, line in enumerate(lines, 1):
            if fault := _java_fault(before, line):
                faults.append(f"{file.name}:{number}: {fault}")
            if line.strip() and not line.lstrip().startswith(("*", "//")):
                before = line.partition(" // ")[0].rstrip()
    assert faults == []


def _java_fault(before: str, line: str) -> str | None:
    if "\t" in line or line != line.rstrip():
        return "a tab, or blanks at the end"
    if len(line) > 120:
        return "longer than 120 columns"
    code = line.lstrip(" ")
    indent = len(line) - len(code) - code.startswith("*")
    if indent % 4:
        return "not indented by fours"
    step = indent - (len(before) - len(before.lstrip(" ")))
    if code and step > 0 and step != (4 if before.endswith(("{", ":")) else 8):
        return f"indented by {step} more than the line before it"
    return None
