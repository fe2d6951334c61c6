"""Options of the example protocol in routes.yaml: those of its `inbound:` section, and a target's."""

from pydantic import Field

from gateway.access import AuthenticatingOptions
from gateway.contract import HttpUrl, TargetOptions


class ExampleServe(AuthenticatingOptions):
    """`inbound.example`: how clients are served."""

    max_body: int = Field(1024 * 1024, gt=0, description="Largest request body in bytes; a larger one is 413.")
    max_stream: float | None = Field(
        None, gt=0, description="Seconds after which a stream is ended, to be resumed (`?after=`). Left out: never."
    )


class ExampleTarget(TargetOptions):
    """An agent of the example protocol over HTTP. The protocol publishes nothing, so the route says what it can do."""

    url: HttpUrl = Field(description="Where the agent takes its runs (POST).")
    request_timeout: float = Field(60.0, gt=0, description="Seconds the agent may take to begin its answer.")
    idle_timeout: float = Field(60.0, gt=0, description="Seconds without a line after which the agent is given up.")
    remembers: bool = Field(
        False,
        description="Whether the agent remembers the runs of a thread, whose id it is told. "
        "Else earlier turns go into its input.",
    )
    files: tuple[str, ...] = Field(
        (), description="Media ranges (`image/*`, `*/*`) of the files that the agent takes. Left out: none."
    )
