"""`daybook token`: access tokens of the stack's own issuer."""

from typing import Annotated

import typer

from infra.base.settings import StackSettings
from infra.cli.output import fail, notes, results
from infra.identity.issuer import TokenIssuer
from infra.stack.platform import platform_of
from infra.stack.site import home_settings, own_site

app = typer.Typer()


def issuer_of(settings: StackSettings) -> TokenIssuer:
    """The issuer of a stack; both sites have the same."""
    return TokenIssuer(home_settings(settings).home / "identity")


@app.command()
def token(
    name: Annotated[
        str, typer.Argument(help="Who will use it: alice. The token has a random id instead.")
    ] = "",
    scope: Annotated[list[str] | None, typer.Option(help="What it allows; may be repeated.")] = None,
    hours: Annotated[float, typer.Option(min=0.01, max=24 * 30, help="How long it is valid.")] = 1.0,
    settings: Annotated[
        bool, typer.Option("--settings", help="Print the settings with which the APIs verify tokens.")
    ] = False,
    why: Annotated[
        str, typer.Option("--why", metavar="TEXT", help="Why. It is stored for ever: no personal data.")
    ] = "",
) -> None:
    """Print an access token, or the settings with which the APIs verify this stack's tokens.

    The scopes are in docs/reference/tokens.md. Another issuer's tokens do as well: DAYBOOK_TOKEN_KEYS.
    """
    issuer = issuer_of(StackSettings())
    if settings:
        for variable, value in issuer.settings().items():
            results.print(f"{variable}={value}")
        return
    if not name:
        fail("for whom? `./daybook token alice --scope orders:place`")
    from infra.cli.acts import recorded  # which needs this module
    from infra.cli.inspect import running_settings

    subject, issued = issuer.subject(name), issuer.token(name, scope or [], hours)
    own = StackSettings()
    if platform_of(own).up(own_site(own)):
        with recorded("token", " ".join([subject, *(scope or [])]), why, running_settings().kafka):
            results.print(issued)
    else:
        results.print(issued)
        notes.print("The shop is not running, so that `./daybook journal` will not show this token.")
    notes.print(f"{name} is {subject} in the token.")
