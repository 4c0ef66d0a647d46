"""The `penstock` command.

Each verb is one file beside this one, loaded when it is called: `--help` and `validate` start in a fraction of a second
because nothing here loads Spark, Delta or a Kafka client.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock import __version__
from penstock.cli.options import before_verb
from penstock.cli.registry import Verbs

app = typer.Typer(
    name="penstock",
    cls=Verbs,
    help="Land Kafka topics in Delta Lake exactly once, and prove it.\n\n"
    "A project is a folder with a penstock.yml. [bold]init[/bold] writes one, [bold]validate[/bold] checks it, "
    "[bold]run[/bold] runs it, [bold]status[/bold] shows it, and [bold]verify[/bold] proves that every record "
    "is in its table once. [bold]demo[/bold] shows all of that in a minute.",
    epilog="Exit code: 0 fine, 1 the answer is no, 2 wrong use or a wrong project file, 3 a failure while running.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    directory: Annotated[Path | None, typer.Option("-C", metavar="DIR", help="The project folder.")] = None,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="The version.")] = False,
) -> None:
    before_verb.set(directory)


def main() -> None:
    from penstock.errors import PenstockError

    # Py4J logs a dead JVM to the root logger, with a traceback; the user gets an error from Penstock instead.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        app()
    except PenstockError as error:
        from penstock.cli.console import err, error_text, print_json

        if "--json" in sys.argv:
            print_json({"error": {"kind": type(error).__name__, "message": error.message, "hint": error.hint}})
        err.print(error_text(error), soft_wrap=True)
        sys.exit(error.exit_code)
    except Exception as error:
        if os.environ.get("PENSTOCK_TRACEBACK"):
            raise
        sys.stderr.write(f"error: something unexpected: {type(error).__name__}: {error}\n")
        sys.stderr.write("  -> run it again with PENSTOCK_TRACEBACK=1 to see where, and please report it\n")
        sys.exit(3)


if __name__ == "__main__":
    main()
