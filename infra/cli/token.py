"""`daybook token`: access tokens of the stack's own issuer."""

from typing import Annotated

import typer

from infra.base.settings import StackSettings
from infra.cli.output import fail, notes, results
from infra.stack.tokens import issuer_of

app = typer.Typer()


@app.command()
def token(
    name: Annotated[str, typer.Argument(help="Who will use it: alice. The token has an id instead.")] = "",
    scope: Annotated[list[str] | None, typer.Option(help="What it allows; may be repeated.")] = None,
    hours: Annotated[float, typer.Option(min=0.01, max=24 * 30, help="How long it is valid.")] = 1.0,
) -> None:
    """Print an access token for someone who tries the shop.

    The scopes are in docs/reference/tokens.md. `./daybook up` made the key that signs it.
    """
    if not name:
        fail("for whom? `./daybook token alice --scope orders:place`")
    issuer = issuer_of(StackSettings())
    results.print(issuer.token(name, scope or [], hours))
    notes.print(f"{name} is {issuer.subject(name)} in the token.")
