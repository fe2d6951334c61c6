"""Finds the endpoints of traces and metrics in routes.yaml and the standard OTEL_* variables, without OpenTelemetry."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.config import Telemetry

log = logging.getLogger(__name__)

TRACES, METRICS = "traces", "metrics"
"""The signals."""
_PATH = "/v1/"


@dataclass(frozen=True)
class OtlpEndpoint:
    """An endpoint. `url` is None if the exporter takes it from the environment."""

    url: str | None
    service: str | None = None
    headers: dict[str, str] = field(default_factory=dict, repr=False)


def endpoint(telemetry: Telemetry, signal: str) -> OtlpEndpoint | None:
    """Return the endpoint of a signal; None if it is not to be sent."""
    env, own = os.environ, signal.upper()
    chosen = env.get(f"OTEL_{own}_EXPORTER") or "otlp"
    if env.get("OTEL_SDK_DISABLED", "").lower() == "true" or "otlp" not in chosen.split(","):
        return None
    headers = {name: value.get_secret_value() for name, value in telemetry.headers.items()}
    if telemetry.otlp:
        base = telemetry.otlp.removesuffix(_PATH + TRACES)
        return OtlpEndpoint(base + _PATH + signal, telemetry.service_name, headers)
    for variable in (f"OTEL_EXPORTER_OTLP_{own}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        if env.get(variable):
            if "grpc" in (env.get(f"OTEL_EXPORTER_OTLP_{own}_PROTOCOL"), env.get("OTEL_EXPORTER_OTLP_PROTOCOL")):
                log.warning("%s are sent as OTLP over HTTP; %s names a gRPC endpoint", signal, variable)
            return OtlpEndpoint(None, telemetry.service_name, headers)
    return None
