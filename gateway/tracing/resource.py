"""What all that is sent over OTLP has in common: who sends it, and how long the end may take."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from importlib import metadata

from opentelemetry.sdk.resources import Resource

from gateway.tracing import names

SHUTDOWN_SECONDS = 3.0


def resource(service: str | None) -> Resource:
    """This gateway. `service`: its name in routes.yaml.

    The environment (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES) counts where the file names none.
    """
    own = {}
    with contextlib.suppress(metadata.PackageNotFoundError):  # run from a checkout that is not installed
        own["service.version"] = metadata.version(names.SERVICE)
    if service:
        own["service.name"] = service
    return Resource({"service.name": names.SERVICE}).merge(_from_environment()).merge(Resource(own))


def finish(send: Callable[[], object], give_up: Callable[[], object]) -> None:
    """Send the rest, stop the thread. An endpoint that does not answer is given up after SHUTDOWN_SECONDS."""
    last = threading.Thread(target=send, daemon=True)
    last.start()
    last.join(SHUTDOWN_SECONDS)
    if last.is_alive():
        give_up()


def _from_environment() -> Resource:
    found = Resource.create()
    given = dict(found.attributes)
    if str(given.get("service.name", "")).startswith("unknown_service"):
        del given["service.name"]
    return Resource(given)
