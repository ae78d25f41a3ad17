"""`daybook rebuild`: builds a read model again from the log, beside the live one, or restores the previous one."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer
from asyncpg import InterfaceError, PostgresError, UndefinedColumnError, UndefinedTableError
from confluent_kafka import KafkaException

from infra.base.settings import StackSettings
from infra.cli.acts import Why, recorded
from infra.cli.output import counting_bar, fail, notes, results
from infra.stack.shop import OWNER, database_url
from infra.stack.site import as_started
from services.projection.engine.position import LogReplaced
from services.projection.engine.read_model import Stopped, TooManyParked
from services.projection.engine.rebuild import (
    AlreadyRebuilding,
    Lake,
    NothingToRebuild,
    NothingToRollBack,
    RebuildResult,
    replay_into,
    roll_back,
)
from services.projection.engine.settings import ProjectionSettings
from services.projection.read_models import READ_MODELS

app = typer.Typer()
KEPT = "The live read model is unchanged."
NAMES = [model.name for model in READ_MODELS]


@app.command()
def rebuild(
    read_model: Annotated[str, typer.Argument(help=f"One of {', '.join(NAMES)}.", metavar="READ_MODEL")],
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Restore the previous tables, which the last rebuild kept.")
    ] = False,
    why: Why = "",
) -> None:
    """Rebuild a read model from the first event, without downtime.

    Run it with the code that will serve the read model. The live tables serve queries and receive events until
    the new tables have caught up. Then one transaction replaces them. Processes with other code end with exit
    code 8 and restart with the new code. The previous tables are kept until the next rebuild; --rollback, run
    with the previous code, brings them up to date and restores them. Safe to interrupt.
    """
    if read_model not in NAMES:
        fail(f"there is no read model {read_model}; there are {', '.join(NAMES)}")
    settings = projection_settings()
    if rollback:
        model = next(model for model in READ_MODELS if model.name == read_model)
        most = settings.max_parked_keys
        with recorded("rebuild --rollback", read_model, why, settings.kafka), _failing():
            done = asyncio.run(roll_back(settings.kafka, settings.database_url, model, max_parked_keys=most))
        _show({read_model: done})
    else:
        build([read_model], settings, why=why)


def build(names: Sequence[str], settings: ProjectionSettings, lake: Lake | None = None, why: str = "") -> int:
    """Build the read models with a progress bar, and print the results. Returns the number of applied events."""
    with recorded("rebuild", " ".join(names), why, settings.kafka), _failing():
        done = asyncio.run(_build(names, settings, lake))
    _show(done)
    return sum(result.events for result in done.values())


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except (AlreadyRebuilding, NothingToRebuild, NothingToRollBack) as error:
        fail(str(error))
    except (UndefinedTableError, UndefinedColumnError) as error:
        fail(f"nothing to rebuild ({_line(error)}): has the projection run yet? See `./daybook status`")
    except TooManyParked as error:
        fail(f"too many keys cannot be applied ({_line(error)}): correct the read model's fold.py. {KEPT}")
    except LogReplaced as error:
        fail(f"{_line(error)}. {KEPT}")
    except Stopped as error:
        fail(
            f"the log cannot be applied ({_line(error)}): correct the read model's fold.py, or see "
            f"`./daybook audit` for the log. {KEPT}"
        )
    except (OSError, KafkaException, PostgresError, InterfaceError) as error:
        fail(f"the shop does not respond ({_line(error)}): is it running? `./daybook up` starts it")


def _show(done: Mapping[str, RebuildResult]) -> None:
    for name, result in done.items():
        results.print(
            f"{name}: {result.events:,} events applied, the projection waited {result.switch_seconds * 1000:.0f} ms"
        )
    if parked := sum(result.parked for result in done.values()):
        notes.print(f"{parked} keys are parked: `./daybook parked list`")


def _line(error: Exception) -> str:
    """The first line of its text; PostgreSQL adds details below."""
    return str(error).partition("\n")[0]


def projection_settings() -> ProjectionSettings:
    """The running stack's addresses; without one, the environment's, if it names both.

    Never the defaults: another checkout's shop may use them.
    """
    if (running := as_started(StackSettings())) is None:
        named = ProjectionSettings()
        if not {"kafka", "database_url"} <= named.model_fields_set:
            fail("the stack is not running: `./daybook up` starts it")
        return named
    return ProjectionSettings(kafka=running.kafka, database_url=database_url(running, OWNER))


async def _build(
    names: Sequence[str], settings: ProjectionSettings, lake: Lake | None
) -> dict[str, RebuildResult]:
    models = [model for model in READ_MODELS if model.name in names]
    with counting_bar(transient=True) as progress:
        task = progress.add_task(", ".join(names), total=None)
        return await replay_into(
            settings.kafka,
            settings.database_url,
            models,
            lake=lake,
            max_parked_keys=settings.max_parked_keys,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
