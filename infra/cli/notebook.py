"""`daybook notebook`: JupyterLab on the running shop."""

import os
import sys
from collections.abc import Mapping
from typing import Annotated

import typer

from infra.base.ports import HOST
from infra.base.settings import ROOT, StackSettings
from infra.cli.audit import lake_location, marts_location
from infra.cli.inspect import running_settings
from infra.cli.output import notes
from infra.stack.embedded.java import spark_environment
from infra.stack.shop import addresses

NOTEBOOKS = ROOT / "analytics" / "notebooks"

app = typer.Typer()


@app.command()
def notebook(
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="The port; if it is in use, the next free one.")
    ] = 8888,
    browser: Annotated[bool, typer.Option(help="Open it in the browser.")] = True,
) -> None:
    """Open JupyterLab on the running shop: addresses, Java and Spark's jars are set.

    It listens only on this machine, and requires the token in the address that it prints. Ctrl-C stops it.
    """
    settings = running_settings()
    with notes.status("fetching Spark's jars"):
        environment = notebook_environment(settings)
    options = [f"--ServerApp.ip={HOST}", f"--ServerApp.port={port}", f"--ServerApp.root_dir={NOTEBOOKS}"]
    if not browser:
        options.append("--no-browser")
    if os.geteuid() == 0:
        # Jupyter asks root to be sure of it; a kernel can do no more than who started the shop.
        options.append("--allow-root")
    # In place of this process: Ctrl-C and the questions that follow are JupyterLab's own.
    os.execve(sys.executable, [sys.executable, "-m", "jupyterlab", *options], {**os.environ, **environment})


def notebook_environment(settings: StackSettings) -> Mapping[str, str]:
    """What a notebook needs to reach a running shop and to import the code. Raises DaybookError."""
    return {
        **spark_environment(),
        **addresses(settings),
        "DAYBOOK_HOME": str(settings.home.absolute()),
        "DAYBOOK_LAKE": lake_location(settings),
        "DAYBOOK_MARTS": marts_location(settings),
        "PYTHONPATH": str(ROOT),
        # Else Spark looks for an outside address of this machine, and warns that it found one.
        "SPARK_LOCAL_IP": HOST,
    }
