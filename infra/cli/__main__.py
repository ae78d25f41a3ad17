"""`python -m infra.cli`: what `./daybook` runs."""

from infra.cli.main import main

main()
