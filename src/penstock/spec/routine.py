"""A Python function that a table names, `transforms.py:clean_orders`, looked at without running it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from penstock.spec.finding import did_you_mean, shown, wrong


@dataclass(frozen=True)
class Routine:
    file: Path
    name: str
    parameters: tuple[str, ...]
    defaults: int
    """So many of the last parameters may be left out."""

    def accepts(self, given: int) -> bool:
        return len(self.parameters) - self.defaults <= given <= len(self.parameters)


def find_routine(written: str, root: Path) -> Routine:
    """Raises Wrong."""
    path, colon, name = written.rpartition(":")
    if not colon or not path.endswith(".py") or not name.isidentifier():
        raise wrong(f"{shown(written)} does not name a function", "write file.py:function")
    file = (root / Path(path).expanduser()).absolute()
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    except FileNotFoundError:
        raise wrong(f"there is no file {shown(path)}", "a relative path starts at the project folder") from None
    except (OSError, UnicodeDecodeError) as error:
        raise wrong(f"{path} cannot be read: {error}", "make it a UTF-8 file that you may read") from None
    except SyntaxError as error:
        raise wrong(f"{path}:{error.lineno}: {error.msg}", "correct the Python file") from None
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if name not in functions:
        hint = did_you_mean(name, list(functions)) if functions else "write one: def name(rows): return rows"
        raise wrong(f"{path} has no function '{name}'", hint)
    arguments = functions[name].args
    parameters = tuple(one.arg for one in (*arguments.posonlyargs, *arguments.args))
    return Routine(file, name, parameters, len(arguments.defaults))
