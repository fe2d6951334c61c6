"""Where traces go: decided from routes.yaml and the standard OTEL_* variables, without importing OpenTelemetry."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.config import Telemetry

log = logging.getLogger(__name__)

TRACES_PATH = "/v1/traces"


@dataclass(frozen=True)
class Endpoint:
    """`url` is None where the exporter is to take it from the environment."""

    url: str | None
    service: str | None = None
    headers: dict[str, str] = field(default_factory=dict, repr=False)


def endpoint(telemetry: Telemetry) -> Endpoint | None:
    """The endpoint, None if nothing is to be traced."""
    env = os.environ
    if env.get("OTEL_SDK_DISABLED", "").lower() == "true" or env.get("OTEL_TRACES_EXPORTER", "otlp") == "none":
        return None
    headers = {name: value.get_secret_value() for name, value in telemetry.headers.items()}
    if telemetry.otlp:
        url = telemetry.otlp if telemetry.otlp.endswith(TRACES_PATH) else telemetry.otlp + TRACES_PATH
        return Endpoint(url, telemetry.service_name, headers)
    for variable in ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        if env.get(variable):
            if "grpc" in (env.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), env.get("OTEL_EXPORTER_OTLP_PROTOCOL")):
                log.warning("traces are sent as OTLP over HTTP; %s names a gRPC endpoint", variable)
            return Endpoint(None, telemetry.service_name, headers)
    return None
