"""`daybook token`: access tokens of the stack's own issuer."""

from typing import Annotated

import typer

from infra.base.settings import StackSettings
from infra.cli.acts import Why, recorded
from infra.cli.inspect import running_settings
from infra.cli.output import fail, notes, results
from infra.stack.platform import platform_of
from infra.stack.site import Site
from infra.stack.tokens import issuer_of

app = typer.Typer()


@app.command()
def token(
    name: Annotated[str, typer.Argument(help="Who will use it: alice. The token has an id instead.")] = "",
    scope: Annotated[list[str] | None, typer.Option(help="What it allows; may be repeated.")] = None,
    hours: Annotated[int, typer.Option(min=1, max=24 * 30, help="How long it is valid.")] = 1,
    why: Why = "",
) -> None:
    """Print an access token for someone who tries the shop.

    The scopes are in docs/reference/tokens.md. `./daybook up` made the key that signs it.
    """
    if not name:
        fail("for whom? `./daybook token alice --scope orders:place`")
    issuer = issuer_of(StackSettings())
    subject, issued = issuer.subject(name), issuer.token(name, scope or [], hours)
    own = StackSettings()
    if platform_of(own).up(Site(own)):
        with recorded("token", " ".join([subject, *(scope or [])]), why, running_settings().kafka):
            results.print(issued)
    else:
        results.print(issued)
        notes.print("The shop is not running, so that `./daybook journal` will not show this token.")
    notes.print(f"{name} is {subject} in the token.")
