"""The lock, served read-only with the API of Confluent's Schema Registry: `python -m infra.log.registry`.

For tools that need a registry; the shop itself reads the lock. Of Apicurio's API it has the part that Apicurio's
converter needs, which reads our events in Kafka Connect.
"""

import re
import sys
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import fastavro
import msgspec
from fastapi import Depends, FastAPI
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from contracts.lock import Entry, Lock, load_lock
from infra.base.settings import FromEnvironment
from infra.log.contracts.schemas import fingerprint
from services.edge.app import api_router, application
from services.edge.identity import scopes
from services.edge.json_logs import configure_logging
from services.edge.server import serve_api

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
APICURIO = "/apis/registry/v2/ids/contentIds"
READ_ONLY = (
    "this registry is read-only: it serves contracts/schemas.lock.json. "
    "Change the schemas in contracts/ and run `./daybook contracts lock`"
)
SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, SCHEMA_NOT_FOUND = 40401, 40402, 40403
INVALID_SCHEMA, INVALID_VERSION = 42201, 42202
_NUMBER = re.compile("[0-9]{1,9}")


class RegistrySettings(FromEnvironment):
    """Environment variables: DAYBOOK_ before each. `health_host` and `health_port` serve health and metrics."""

    http_host: str = "127.0.0.1"
    http_port: Annotated[int, Field(ge=1, le=65535)] = 27404
    health_host: str = "127.0.0.1"
    health_port: Annotated[int, Field(ge=1, le=65535)] = 27408
    log_level: str = "INFO"


@dataclass(frozen=True)
class ClientParameters:
    """Parameters of Confluent's API that its clients send; none changes the responses of a read-only lock."""

    defaultToGlobal: str = ""
    deleted: str = ""
    deleted_only: str = ""
    fetchMaxId: str = ""
    format: str = ""
    limit: str = ""
    normalize: str = ""
    offset: str = ""
    reference_format: str = ""
    subject: str = ""
    subjectPrefix: str = ""


class RegistryError(HTTPException):
    """An error with Confluent's five-digit code, of which the first three are HTTP's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code // 100, text)
        self.code = code


class RegistryResponse(JSONResponse):
    media_type = MEDIA_TYPE


class SchemaText(PlainTextResponse):
    media_type = MEDIA_TYPE


async def served(request: Request) -> Lock:
    """A dependency: the lock."""
    lock: Lock = request.app.state.lock
    return lock


Served: TypeAlias = Annotated[Lock, Depends(served)]


async def versions_of(subject: str, lock: Served) -> tuple[Entry, ...]:
    """A dependency: the subject's versions."""
    try:
        return lock.versions(subject)
    except KeyError:
        raise RegistryError(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.") from None


Versions: TypeAlias = Annotated[tuple[Entry, ...], Depends(versions_of)]


async def version_of(version: str, entries: Versions) -> Entry:
    """A dependency: one of them."""
    if version in ("latest", "-1"):
        return entries[-1]
    if not _NUMBER.fullmatch(version):
        raise RegistryError(INVALID_VERSION, f"The specified version '{version}' is not a valid version id.")
    for entry in entries:
        if entry.version == int(version):
            return entry
    raise RegistryError(VERSION_NOT_FOUND, f"Version {version} not found.")


async def uses_of(schema_id: str, lock: Served) -> list[Entry]:
    """A dependency: where a schema is used."""
    uses = [entry for entry in lock.entries if str(entry.id) == schema_id]
    if not uses:
        raise RegistryError(SCHEMA_NOT_FOUND, f"Schema {schema_id} not found")
    return uses


Version: TypeAlias = Annotated[Entry, Depends(version_of)]
Uses: TypeAlias = Annotated[list[Entry], Depends(uses_of)]
router = api_router(
    default_response_class=RegistryResponse, dependencies=[scopes("ops:read"), Depends(ClientParameters)]
)


@router.get("/subjects")
async def list_subjects(lock: Served) -> list[str]:
    return list(lock.subjects())


@router.get("/subjects/{subject}/versions")
async def list_versions(entries: Versions) -> list[int]:
    return [entry.version for entry in entries]


@router.get("/subjects/{subject}/versions/{version}")
async def get_version(entry: Version, lock: Served) -> dict[str, Any]:
    return _described(entry, lock)


@router.get("/subjects/{subject}/versions/{version}/schema", response_class=SchemaText)
async def get_version_text(entry: Version, lock: Served) -> str:
    return lock.text(entry.id)


@router.get("/schemas/ids/{schema_id}")
async def get_schema(uses: Uses, lock: Served) -> dict[str, str]:
    return {"schema": lock.text(uses[0].id)}


@router.get("/schemas/ids/{schema_id}/schema", response_class=SchemaText)
@router.get(f"{APICURIO}/{{schema_id}}", response_class=SchemaText)
async def get_schema_text(uses: Uses, lock: Served) -> str:
    return lock.text(uses[0].id)


@router.get("/schemas/ids/{schema_id}/versions")
async def list_uses(uses: Uses) -> list[dict[str, Any]]:
    return [{"subject": entry.subject, "version": entry.version} for entry in uses]


@router.get("/schemas/ids/{schema_id}/subjects")
async def list_using_subjects(uses: Uses) -> list[str]:
    return [entry.subject for entry in uses]


@router.get(f"{APICURIO}/{{schema_id}}/references")
async def list_references(_: Uses) -> list[str]:
    """What a schema refers to outside of itself: none of ours does."""
    return []


@router.get("/schemas/types")
async def list_types() -> list[str]:
    return ["AVRO"]


@router.get("/config")
@router.get("/config/{subject}")
async def get_config() -> dict[str, str]:
    return {"compatibilityLevel": "FULL_TRANSITIVE"}


@router.get("/mode")
async def get_mode() -> dict[str, str]:
    return {"mode": "READONLY"}


@router.post("/subjects/{subject}")
async def find_version(request: Request, entries: Versions, lock: Served) -> dict[str, Any]:
    """The version of a subject that has the schema in the body, formatting and docs aside."""
    try:
        digest = fingerprint(msgspec.json.decode((await request.json())["schema"]))
    except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
        raise RegistryError(INVALID_SCHEMA, f"Invalid schema: {error!r}") from error
    for entry in entries:
        if entry.fingerprint == digest:
            return _described(entry, lock)
    raise RegistryError(SCHEMA_NOT_FOUND, "Schema not found")


def _described(entry: Entry, lock: Lock) -> dict[str, Any]:
    return {"subject": entry.subject, "version": entry.version, "id": entry.id, "schema": lock.text(entry.id)}


def create(lock: Lock) -> FastAPI:
    """The application over one lock."""
    app = application([router], lambda: None)
    app.state.lock = lock
    app.add_exception_handler(HTTPException, _error_response)
    return app


async def _error_response(_: Request, error: Exception) -> Response:
    match error:
        case RegistryError():
            content: dict[str, Any] = {"error_code": error.code, "message": error.detail}
        case HTTPException(status_code=405):
            content = {"error_code": 405, "message": READ_ONLY}
        case HTTPException():
            content = {"error_code": error.status_code, "message": error.detail}
        case _:
            raise error
    return RegistryResponse(content, error.status_code, headers=error.headers)


def main() -> int:
    """The process's exit code."""
    settings = RegistrySettings()
    configure_logging("registry", settings.log_level)
    clients = settings.http_host, settings.http_port
    return serve_api(create(load_lock()), clients, (settings.health_host, settings.health_port))


if __name__ == "__main__":
    sys.exit(main())
