"""Rules of the source tree that no other tool checks. The layers are checked by `make check`."""

from __future__ import annotations

import ast
import io
import re
import tokenize
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


_BACKTICKS = re.compile(r"(?<!`)`([A-Za-z_]\w*)(?:\(\))?`(?!`)")
_NOT_OURS = {"equalsIgnoreCase", "ext4", "monotonically_increasing_id", "nfs4", "no", "python3"}
"""Names in comments that belong to Java, Spark, the system or YAML, and that no code of ours has."""
_EXAMPLES = {"has_id"}


def test_names_in_docstrings_and_comments_exist() -> None:
    """A name in backticks is in the code of its file, or is known everywhere: a module, class, function or field, a
    text of one word (a verb, a key, a column), or a word of the Java sources and templates."""
    known, files = set(_NOT_OURS | _EXAMPLES), {}
    for file in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(file.read_text())
        files[file] = _code_and_prose(file.read_text(), tree)
        known |= {file.stem, file.parent.name, *_known_everywhere(tree)}
    for file in SOURCE.rglob("*"):
        if file.suffix in (".java", ".html"):
            known |= set(re.findall(r"\w+", file.read_text(encoding="utf-8")))
    unknown = [
        f"{file.relative_to(SOURCE)}:{line + prose[: match.start()].count(chr(10))}: {match[1]}"
        for file, (words, texts) in files.items()
        for line, prose in texts
        for match in _BACKTICKS.finditer(prose)
        if match[1] not in words and match[1] not in known
    ]
    assert unknown == []


def _code_and_prose(source: str, tree: ast.Module) -> tuple[set[str], list[tuple[int, str]]]:
    """The words of the code, those of its texts too; and its docstrings and comments with their lines."""
    docstrings = {
        (statement.value.lineno, statement.value.col_offset)
        for statement in ast.walk(tree)
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    }
    words: set[str] = set()
    prose = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.start in docstrings):
            prose.append((token.start[0], token.string))
        else:
            words |= set(re.findall(r"\w+", token.string))
    return words, prose


def _known_everywhere(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Constant(value=str(text)) if text.isidentifier():
                found.add(text)
    for body in [tree.body, *(node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]:
        for statement in body:
            match statement:
                case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                    found.add(name)
    return found


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
