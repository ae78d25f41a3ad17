"""`daybook analytics`: the jobs of analytics."""

import typer

from infra.cli import check_source, lake, marts

app = typer.Typer(no_args_is_help=True, help="Analyse the whole history: the lake and the marts.")
for commands in (lake, marts, check_source):
    app.add_typer(commands.app)
