"""`daybook rebuild`: build a read model again from the log, beside the live one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer
from asyncpg import InterfaceError, PostgresError, UndefinedTableError
from confluent_kafka import KafkaException
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from infra.commands.inspect import running_settings
from infra.commands.output import fail, notes, results
from infra.embedded.journal import Journal
from infra.embedded.stack import addresses
from infra.settings import StackSettings
from services.kernel.read_model import Stopped, TooManyParked
from services.projection.another_log import AnotherLog
from services.projection.bulk import Lake, replay_into
from services.projection.read_models import READ_MODELS
from services.projection.rebuild import AlreadyRebuilding, NothingToRebuild, Rebuilt
from services.projection.settings import ProjectionSettings

app = typer.Typer()
KEPT = "The live one goes on as it was."
NAMES = [model.name for model in READ_MODELS]


@app.command(rich_help_panel="Read models")
def rebuild(
    read_model: Annotated[str, typer.Argument(help=f"One of {', '.join(NAMES)}.", metavar="READ_MODEL")],
) -> None:
    """Build a read model again from the first event and put it in place without downtime.

    The live one answers queries and takes events until the new one has caught up with it; then they change
    places in one transaction. Safe to interrupt.
    """
    if read_model not in NAMES:
        fail(f"there is no read model {read_model}; there are {', '.join(NAMES)}")
    build([read_model], projection_settings())


def build(names: Sequence[str], settings: ProjectionSettings, lake: Lake | None = None) -> int:
    """Build the read models, show how far, then what came of each; the number of events applied."""
    try:
        done = asyncio.run(_build(names, settings, lake))
    except (AlreadyRebuilding, NothingToRebuild) as error:
        fail(str(error))
    except UndefinedTableError as error:
        fail(f"nothing to rebuild ({_line(error)}): has the projection run yet? See `./daybook status`")
    except TooManyParked as error:
        fail(f"too many keys cannot be applied ({_line(error)}): correct the read model's fold.py. {KEPT}")
    except AnotherLog as error:
        fail(f"{_line(error)}. {KEPT}")
    except Stopped as error:
        fail(
            f"the log cannot be applied ({_line(error)}): correct the read model's fold.py, or see "
            f"`./daybook audit` for the log. {KEPT}"
        )
    except (OSError, KafkaException, PostgresError, InterfaceError) as error:
        fail(f"the shop does not answer ({_line(error)}): is it open? `./daybook up` opens it")
    for name, one in done.items():
        results.print(
            f"{name}: {one.events:,} events applied, the projection waited {one.held * 1000:.0f} ms"
        )
    if parked := sum(one.parked for one in done.values()):
        notes.print(f"{parked} keys are parked: `./daybook parked list`")
    return sum(one.events for one in done.values())


def _line(error: Exception) -> str:
    """What it says first; PostgreSQL goes on about details below."""
    return str(error).partition("\n")[0]


def projection_settings() -> ProjectionSettings:
    """The running stack's addresses; without one, the environment's, if it names both.

    Never their defaults: another checkout's shop may listen there.
    """
    stack = StackSettings()
    journal = Journal(stack.home)
    if stack.stack == "embedded" and not journal.supervised():
        named = ProjectionSettings()
        if not {"kafka", "database_url"} <= named.model_fields_set:
            fail("the stack is not up: `./daybook up` starts it")
        return named
    found = addresses(running_settings())
    return ProjectionSettings(kafka=found["DAYBOOK_KAFKA"], database_url=found["DAYBOOK_DATABASE_URL"])


async def _build(names: Sequence[str], settings: ProjectionSettings, lake: Lake | None) -> dict[str, Rebuilt]:
    models = [model for model in READ_MODELS if model.name in names]
    bar = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*bar, console=notes, transient=True) as progress:
        task = progress.add_task(", ".join(names), total=None)
        return await replay_into(
            settings.kafka,
            settings.database_url,
            models,
            lake=lake,
            max_parked_keys=settings.max_parked_keys,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
