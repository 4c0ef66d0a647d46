"""`penstock plan`."""

from __future__ import annotations

import typer

from penstock.cli.options import AsJson, Directory, Tables, load_plan


def command(tables: Tables = None, directory: Directory = None, as_json: AsJson = False) -> None:
    """Show what run will do: tables, sources, settings and why.

    It is worked out from the project file, and compared with the ledgers in the lake: whether a table is new, or its
    definition another than that of its last batch. Neither Spark nor a broker is needed, and nothing is changed.
    """
    from penstock.cli.console import out, print_json
    from penstock.ops.fit import fit_all
    from penstock.ops.inferred import inferred_schemas
    from penstock.plan.select import choose

    plan = load_plan(directory)
    chosen = choose(plan, tables or [])
    fits, kept = fit_all(plan, chosen), inferred_schemas(plan, chosen)
    if as_json:
        from penstock.ops.checkpoints.document import fit_document
        from penstock.plan.document import plan_document

        document = plan_document(plan, tables or ())
        for table in document["tables"]:
            table["fit"] = fit_document(fits[table["name"]])
            if table["name"] in kept:
                table["inferred"] = kept[table["name"]].document
        print_json(document)
    else:
        from penstock.cli.plan_view import plan_view

        if not out.is_terminal:
            out.width = 200  # piped, there is no width to keep to: paths stay in one piece for grep
        with out.capture() as printed:
            out.print(
                plan_view(
                    plan,
                    tables or (),
                    {name: one.said for name, one in fits.items()},
                    {name: one.said for name, one in kept.items()},
                )
            )
        typer.echo("\n".join(line.rstrip() for line in printed.get().splitlines()))
