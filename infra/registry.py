"""The lock, served read-only in the dialect of Confluent's Schema Registry: `python -m infra.registry`.

For tools that ask a registry. The shop itself never does: it reads the lock. Of Apicurio's dialect as much as
its converter needs, which reads our events in Kafka Connect.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Annotated, Any

import fastavro
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from contracts.lock import Entry, Lock, load_lock
from infra.contracts.schemas import fingerprint
from services.edge.http import Endpoint, exception_handlers, known_parameters
from services.edge.json_logs import configure_logging
from services.edge.serving import operations, serve

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
APICURIO = "/apis/registry/v2/ids/contentIds"
READ_ONLY = (
    "this registry is read-only: it serves contracts/schemas.lock.json. "
    "Change the schemas in contracts/ and run `./daybook contracts lock`"
)
SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, SCHEMA_NOT_FOUND = 40401, 40402, 40403
INVALID_SCHEMA, INVALID_VERSION = 42201, 42202
# Parameters of Confluent's API that its clients send; none of them changes what a read-only lock answers.
PARAMETERS = (
    "defaultToGlobal",
    "deleted",
    "deleted_only",
    "fetchMaxId",
    "format",
    "limit",
    "normalize",
    "offset",
    "reference_format",
    "subject",
    "subjectPrefix",
)
_NUMBER = re.compile("[0-9]{1,9}")


class RegistrySettings(BaseSettings):
    """Environment variables: DAYBOOK_HTTP_HOST, DAYBOOK_HTTP_PORT, DAYBOOK_LOG_LEVEL."""

    model_config = SettingsConfigDict(env_prefix="DAYBOOK_", frozen=True)

    http_host: str = "127.0.0.1"
    http_port: Annotated[int, Field(ge=1, le=65535)] = 27404
    log_level: str = "INFO"


class RegistryError(HTTPException):
    """An error with Confluent's five-digit code, of which the first three are HTTP's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code // 100, text)
        self.code = code


def create(lock: Lock) -> Starlette:
    """The application over one lock."""
    endpoints = Endpoints(lock)
    gets = {
        "/subjects": endpoints.subjects,
        "/subjects/{subject}/versions": endpoints.versions,
        "/subjects/{subject}/versions/{version}": endpoints.version,
        "/subjects/{subject}/versions/{version}/schema": endpoints.version_text,
        "/schemas/ids/{id}": endpoints.schema,
        "/schemas/ids/{id}/schema": endpoints.schema_text,
        "/schemas/ids/{id}/versions": endpoints.uses,
        "/schemas/ids/{id}/subjects": endpoints.using_subjects,
        "/schemas/types": endpoints.types,
        "/config": endpoints.config,
        "/config/{subject}": endpoints.config,
        "/mode": endpoints.mode,
        f"{APICURIO}/{{id}}": endpoints.schema_text,
        f"{APICURIO}/{{id}}/references": endpoints.references,
    }
    app = Starlette(
        routes=[
            *(Route(path, _checked(endpoint)) for path, endpoint in gets.items()),
            Route("/subjects/{subject}", _checked(endpoints.lookup), methods=["POST"]),
            *operations(lambda: None),
        ],
        exception_handlers={**exception_handlers(), HTTPException: _answer_error},
    )
    app.router.redirect_slashes = False  # the redirect would name whatever Host the client sent
    return app


class Endpoints:
    """One method per path; what they answer is Confluent's documented JSON."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock

    async def subjects(self, _: Request) -> Response:
        return _answer(list(self._lock.subjects()))

    async def versions(self, request: Request) -> Response:
        return _answer([entry.version for entry in self._entries(request)])

    async def version(self, request: Request) -> Response:
        return _answer(self._described(self._entry(request)))

    async def version_text(self, request: Request) -> Response:
        return PlainTextResponse(self._lock.text(self._entry(request).id), media_type=MEDIA_TYPE)

    async def schema(self, request: Request) -> Response:
        return _answer({"schema": self._lock.text(self._uses(request)[0].id)})

    async def schema_text(self, request: Request) -> Response:
        return PlainTextResponse(self._lock.text(self._uses(request)[0].id), media_type=MEDIA_TYPE)

    async def references(self, request: Request) -> Response:
        """What a schema refers to outside of itself: none of ours does."""
        self._uses(request)
        return _answer([])

    async def uses(self, request: Request) -> Response:
        return _answer([{"subject": each.subject, "version": each.version} for each in self._uses(request)])

    async def using_subjects(self, request: Request) -> Response:
        return _answer([each.subject for each in self._uses(request)])

    async def types(self, _: Request) -> Response:
        return _answer(["AVRO"])

    async def config(self, _: Request) -> Response:
        return _answer({"compatibilityLevel": "FULL_TRANSITIVE"})

    async def mode(self, _: Request) -> Response:
        return _answer({"mode": "READONLY"})

    async def lookup(self, request: Request) -> Response:
        """The version of a subject that has the schema in the body, formatting and docs aside."""
        entries = self._entries(request)
        try:
            wanted = fingerprint(json.loads((await request.json())["schema"]))
        except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
            raise RegistryError(INVALID_SCHEMA, f"Invalid schema: {error!r}") from error
        for entry in entries:
            if entry.fingerprint == wanted:
                return _answer(self._described(entry))
        raise RegistryError(SCHEMA_NOT_FOUND, "Schema not found")

    def _entries(self, request: Request) -> tuple[Entry, ...]:
        subject = request.path_params["subject"]
        try:
            return self._lock.versions(subject)
        except KeyError:
            raise RegistryError(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.") from None

    def _entry(self, request: Request) -> Entry:
        entries, version = self._entries(request), request.path_params["version"]
        if version in ("latest", "-1"):
            return entries[-1]
        if not _NUMBER.fullmatch(version):
            raise RegistryError(
                INVALID_VERSION, f"The specified version '{version}' is not a valid version id."
            )
        for entry in entries:
            if entry.version == int(version):
                return entry
        raise RegistryError(VERSION_NOT_FOUND, f"Version {version} not found.")

    def _uses(self, request: Request) -> list[Entry]:
        schema_id = request.path_params["id"]
        found = [entry for entry in self._lock.entries if str(entry.id) == schema_id]
        if not found:
            raise RegistryError(SCHEMA_NOT_FOUND, f"Schema {schema_id} not found")
        return found

    def _described(self, entry: Entry) -> dict[str, Any]:
        return {
            "subject": entry.subject,
            "version": entry.version,
            "id": entry.id,
            "schema": self._lock.text(entry.id),
        }


def _checked(endpoint: Endpoint) -> Endpoint:
    async def checked(request: Request) -> Response:
        known_parameters(request.query_params, *PARAMETERS)
        return await endpoint(request)

    return checked


def _answer(content: Any, status: int = 200) -> Response:
    return JSONResponse(content, status, media_type=MEDIA_TYPE)


async def _answer_error(_: Request, error: Exception) -> Response:
    match error:
        case RegistryError():
            return _answer({"error_code": error.code, "message": error.detail}, error.status_code)
        case HTTPException(status_code=405):
            content = {"error_code": 405, "message": READ_ONLY}
            return JSONResponse(content, 405, media_type=MEDIA_TYPE, headers=error.headers)
        case HTTPException():
            return _answer({"error_code": error.status_code, "message": error.detail}, error.status_code)
        case _:
            raise error


def main() -> int:
    """The process's exit code."""
    settings = RegistrySettings()
    configure_logging("registry", settings.log_level)
    return serve(create(load_lock()), settings.http_host, settings.http_port)


if __name__ == "__main__":
    sys.exit(main())
