"""The models of routes.yaml, adapters left out: what a key is called, what it takes, what it is for.

Frozen, unknown keys refused. Durations are seconds and sizes bytes once read. The descriptions here are the ones
that the JSON Schema, and so every editor, shows.
"""

from collections.abc import Collection
from pathlib import Path
from string import Template
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    SecretStr,
    SerializeAsAny,
)

from gateway.access.options import OperatorOptions
from gateway.config.units import Duration, Size
from gateway.contract import HttpUrl, InboundOptions, TargetOptions
from gateway.contract.governing import APPROVALS
from gateway.contract.options import (
    ClientLimits,
    DoorLimits,
    HeaderSecret,
    Most,
    Network,
    Options,
    Rate,
    RouteLimits,
    no_flag,
)
from gateway.core.memory import TRANSCRIPT
from gateway.core.types import InterruptSpec
from gateway.registry import Registry
from gateway.yaml_document import Document, Mistake, Where

if TYPE_CHECKING:
    from gateway.governance.binding import Binding

AGENT_NAME = r"^[a-zA-Z0-9_-]+$"
HOST_NAME = r"^[A-Za-z0-9._*-]+$"
JSON_POINTER = r"^(/([^/~]|~[01])*)*$"


def _empty_if_null(value: Any) -> Any:
    """`webhooks:` with nothing below it is the section with nothing set."""
    return {} if value is None else value


T = TypeVar("T")
OrEmpty = Annotated[T, BeforeValidator(_empty_if_null)]


def _listed(value: Any) -> Any:
    """One name is a list of one."""
    return (value,) if isinstance(value, str) else value


Pointer = Annotated[str, Field(pattern=JSON_POINTER)]
"""A JSON pointer (RFC 6901); the empty string is the whole document."""


class Match(Options):
    """Which requests a route takes. Left out: all."""

    protocol: Annotated[tuple[str, ...], BeforeValidator(_listed)] = Field(
        default=(), description="Only clients of these protocols: one name or a list. Left out: all."
    )
    metadata: dict[str, Any] = Field(
        default={}, description="Only requests whose metadata has these keys with these values."
    )


class TextPlaces(Options):
    """Where the text is inside the agent's documents. Needed only where its schemas do not tell."""

    input: Pointer | None = Field(default=None, description="JSON pointer to the text in the agent's input.")
    output: Pointer | None = Field(default=None, description="JSON pointer to the text in the agent's output.")


Number = Annotated[float, Field(ge=0, allow_inf_nan=False), BeforeValidator(no_flag)]
Rating = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False), BeforeValidator(no_flag)]
"""From 0 to 10, more is better."""
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), BeforeValidator(no_flag)]
"""From 0 to 1, more is more."""


class Traits(Options):
    """Base of sections whose keys stand in for what the agent says of itself."""

    @property
    def given(self) -> dict[str, Any]:
        return {key: getattr(self, key) for key in self.model_fields_set if getattr(self, key) is not None}


class Delegation(Traits):
    """How the agent is weighed against others when a task is delegated and nobody names who is to do it."""

    approve: bool = Field(default=False, description="Whether a person must approve before the agent gets a task.")
    quality: Rating | None = Field(default=None, description="How good its work is, 0 to 10.")
    cost: Number | None = Field(
        default=None, description="What a token costs, in one currency for all routes. Less is better."
    )
    speed: Number | None = Field(default=None, description="Tokens a second. More is better.")
    security: Rating | None = Field(default=None, description="How far it is trusted, 0 to 10.")


class LanguageModel(Traits):
    """The agent stands for a language model: clients that ask for a completion may be served by it."""

    cost: Share = Field(default=0.5, description="How expensive it is beside others: 0 cheap, 1 dear.")
    speed: Share = Field(default=0.5, description="How fast it is beside others: 0 slow, 1 fast.")
    intelligence: Share = Field(default=0.5, description="How capable it is beside others, 0 to 1.")


def _a_template(text: str) -> str:
    template = Template(text)
    if not template.is_valid() or template.get_identifiers() != ["history"]:
        raise ValueError("should have $history in it, and no other name after a $ (write $$ for a $)")
    return text


class Memory(Options):
    """What an agent that does not know the conversation is told of it."""

    mode: Literal["auto", "replay", "none"] = Field(
        default="auto",
        description="replay: earlier turns go into the agent's input. none: each prompt stands alone. "
        "auto: replay, but none for plain tools.",
    )
    turns: Annotated[int, Field(ge=1), BeforeValidator(no_flag)] = Field(
        default=50, description="How many earlier turns go along at most; the oldest are left out."
    )
    bytes: Size = Field(default=65536, description="How much text of them goes along at most; the oldest are left out.")
    messages: Pointer | None = Field(
        default=None,
        description="JSON pointer to the list of messages in the agent's input. Needed only where its schema does not "
        "tell. Agents without such a list are told in text.",
    )
    template: Annotated[str, AfterValidator(_a_template)] = Field(
        default=TRANSCRIPT,
        description="The text before a prompt that tells the earlier turns; $history stands for them.",
    )


class BreakerOptions(Options):
    """When a target that cannot be reached gets no more runs, and for how long."""

    failures: Annotated[int | None, Field(ge=1), BeforeValidator(no_flag)] = Field(
        default=5,
        description="After so many failures in a row to reach it: no connection, a connection lost, no answer in time, "
        "502, 503, 504. What an agent answers itself is none, nor is the end of a `command` that had taken the run. "
        "null: never.",
    )
    first: Duration = Field(
        default=1.0,
        gt=0,
        description="How long at first. Then it is asked what it is; if it does not answer, the time doubles.",
    )
    longest: Duration = Field(default=30.0, gt=0, description="How long at most.")


class Route(Options):
    """One agent and where it lives. The first route of that name whose `match` fits a request takes it."""

    name: str = Field(
        pattern=AGENT_NAME, description="What clients call the agent, in every protocol: letters, digits, _ and -."
    )
    match: OrEmpty[Match] = Field(
        default=Match(), description="Which requests this route takes; the first that fits wins. Left out: all."
    )
    target: SerializeAsAny[TargetOptions] = Field(description="Where the agent is and which protocol it speaks.")
    targets: tuple[SerializeAsAny[TargetOptions], ...] = Field(
        default=(),
        description="In place of `target`: several places where the same agent is, in any protocols. A run goes to one "
        "by `weight`, and to the next where that takes nothing of it; a thread stays where it began.",
    )
    breaker: OrEmpty[BreakerOptions] = Field(
        default=BreakerOptions(), description="When a target that cannot be reached gets no more runs."
    )
    retries: Annotated[int, Field(ge=0, le=10), BeforeValidator(no_flag)] = Field(
        default=2,
        description="How often a run that no target took anything of is sent again: no connection was made, or the "
        "answer was 429 or 503 with Retry-After. Never one that was sent.",
    )
    timeout: Duration | None = Field(
        default=600.0,
        description="How long a run may take, not counting the time a person is asked, and how long a request waits "
        "before for an agent that was never asked what it is. null: as long as it likes.",
    )
    text: OrEmpty[TextPlaces] = Field(
        default=TextPlaces(),
        description="Where the text is in the agent's documents, if its schemas do not tell. Where the agent publishes "
        "no schema, the one that stands in for it has its text there.",
    )
    memory: OrEmpty[Memory] = Field(
        default=Memory(), description="What an agent that does not know the conversation is told of it."
    )
    labels: dict[str, tuple[str, ...]] = Field(
        default={}, description="For directories and capability matching: tools, models, specializations, ..."
    )
    delegation: OrEmpty[Delegation] = Field(
        default=Delegation(),
        description="How the agent is chosen for tasks. What is left out is as the agent says of itself.",
    )
    model: OrEmpty[LanguageModel | None] = Field(
        default=None,
        description="The agent stands for a language model: requests for a completion may be served by it. "
        "Left out: it does not, unless it says so itself.",
    )
    version: str | None = Field(default=None, description="Version to publish instead of the agent's own.")
    description: str | None = Field(default=None, description="Description to publish instead of the agent's own.")
    lossy: Literal["refuse", "allow"] = Field(
        default="refuse",
        description="What becomes of a request that needs what the agent cannot do: refused, or sent without it.",
    )
    limits: OrEmpty[RouteLimits] = Field(
        default=RouteLimits(), description="What all clients together may ask of it. Left out: `limits.route`."
    )
    backpressure: bool = Field(
        default=False, description="Slow the agent down for slow readers instead of letting them fall behind."
    )
    record: Literal["wire"] | None = Field(
        default=None,
        description="`wire`: what clients and the agent say is recorded for operators (`/admin`, the console), without "
        "secrets and within bounds, in the memory of the process that drives the run.",
    )
    manifest: str | None = Field(
        default=None,
        min_length=1,
        description="Path of an ACP.md (AIP-44) that governs the agent, relative to this file. "
        "It is read, with all that it refers to, whenever this file is.",
    )

    _binding: Any = PrivateAttr(default=None)

    def model_post_init(self, _: Any, /) -> None:
        """Tell the targets whose they are."""
        for target in self.places:
            target.belongs(self.name)

    @property
    def places(self) -> tuple[TargetOptions, ...]:
        """The targets: one, or several. `target` is the first of them."""
        return self.targets or (self.target,)

    def shared_out(self, place: int, workers: int) -> "Route":
        """The route of one of several workers, by its place from 0."""
        given = {
            "target": self.target.shared_out(place, workers),
            "targets": tuple(target.shared_out(place, workers) for target in self.targets),
            "limits": self.limits.shared_out(place, workers),
        }
        return self.model_copy(update=given)

    @property
    def binding(self) -> "Binding | None":
        """The rules that `manifest` names, None without one. Routes whose documents differ are not equal."""
        found: Binding | None = self._binding
        return found

    @property
    def asks(self) -> tuple[InterruptSpec, ...]:
        """The questions that the gateway itself may ask in a run of the agent."""
        return () if self.binding is None else (APPROVALS,)

    def govern(self, binding: "Binding") -> None:
        """Once, by whoever reads the file."""
        self._binding = binding


class Retention(Options):
    """How long ended runs and idle threads are kept. Unfinished ones are never removed."""

    age: Duration | None = Field(
        default=7 * 86400.0,
        description="Remove ended runs and idle threads this long after their last change. null: never.",
    )
    size: Size | None = Field(
        default=None, description="Remove the oldest of them while the store is larger than this."
    )


def _an_engine(url: str) -> str:
    """Checks the form of a store's URL. What is wrong is said without the URL, which may have a password."""
    scheme, _, rest = url.partition("://")
    if scheme in ("postgresql", "postgres"):
        hosts, slash, _ = rest.rpartition("@")[2].partition("/")
        ports = [host.rpartition("]")[2].partition(":")[2] for host in hosts.split(",")]
        if "@" in rest and any(sign in rest.rpartition("@")[0] for sign in "/?#@"):
            raise ValueError("has a user name or password with special characters: percent-encode them")
        if not slash or not all(port == "" or port.isdecimal() for port in ports):
            raise ValueError("should be postgresql://USER:PASSWORD@HOST:PORT/DATABASE")
    elif scheme != "sqlite":
        raise ValueError("should be sqlite:///FILE, sqlite:// for one in memory, or postgresql://HOST/DATABASE")
    return url


class StoreOptions(Options):
    """Where runs, threads and artifacts are kept."""

    url: Annotated[str, AfterValidator(_an_engine)] = Field(
        default="sqlite:///interlingua.db",
        repr=False,
        json_schema_extra={"pattern": "^(sqlite|postgres|postgresql)://"},
        description="sqlite:///FILE, relative to this file; sqlite:// alone keeps everything in memory; "
        "postgresql://USER:PASSWORD@HOST:PORT/DATABASE.",
    )
    retention: OrEmpty[Retention] = Field(
        default=Retention(), description="When ended runs and idle threads are removed."
    )
    fsync: bool = Field(
        default=True,
        description="Whether a transition waits for the disk. false: it survives the gateway's death, not a power cut.",
    )
    artifact_limit: Size = Field(
        default=64_000_000, description="Largest file that an agent may make or a client upload."
    )


class WebhookOptions(Options):
    """Callbacks that clients ask for."""

    allow: tuple[Network, ...] = Field(
        default=(), description="Internal networks (CIDR) that callbacks may reach; public addresses always may."
    )


class Audit(Options):
    """How what governed agents do is recorded (docs/audit.md)."""

    key: str | None = Field(
        default=None,
        min_length=1,
        description="Path of the private key (Ed25519, PEM) that every audit entry is signed with, relative to this "
        "file. Left out: entries are not signed.",
    )
    name: str = Field(
        default="",
        max_length=200,
        description="Begins the names by which the store knows the logs' newest entries. Gateways on one store whose "
        'logs are on disks of their own, at one path, need one each: `"${HOSTNAME}"`.',
    )


class EachClient(ClientLimits):
    """What every client may ask for whose own `limits` do not say otherwise."""

    runs: Most = 1000
    requests: Rate = 1000.0
    connections: Most = 500
    sessions: Most = 500


class EachDoor(DoorLimits):
    """What all clients of a protocol together may ask for, where its section does not say otherwise."""

    runs: Most = 10_000
    connections: Most = 10_000


class Limits(Options):
    """What clients may ask of the gateway. Counts are those of one process: of N behind one address, together N times
    as much may be asked for. Only the limits of routes are divided among workers.
    """

    body: Size | None = Field(
        default=None,
        description="Largest request body, uploads left out, for every protocol whose section does not say `max_body`. "
        "Left out: each protocol's own limit.",
    )
    shutdown: Duration = Field(
        default=10.0, description="How long open requests may go on once the gateway is told to stop."
    )
    silence: Duration = Field(
        default=20.0,
        description="How long one of several workers may hang, that is say nothing to its supervisor, before it is "
        "killed and replaced.",
    )
    client: OrEmpty[EachClient] = Field(
        default=EachClient(), description="What each client may ask for, where clients are asked who they are."
    )
    door: OrEmpty[EachDoor] = Field(
        default=EachDoor(), description="What all clients of one protocol together may ask for."
    )
    route: OrEmpty[RouteLimits] = Field(
        default=RouteLimits(), description="What all clients together may ask of one route."
    )
    queue: Most = Field(
        default=100,
        description="How many unended runs a thread may have when one more is to wait for its turn. null: any number.",
    )


class Monitors(Options):
    """Programs elsewhere that `/metrics` and `/readyz` name agents to, as they do to this machine."""

    tokens: tuple[Annotated[SecretStr, Field(min_length=1)], ...] = Field(
        default=(), description="What they show as `Authorization: Bearer`. They open nothing else."
    )
    networks: tuple[Network, ...] = Field(
        default=(),
        description="Networks (CIDR) where whoever asks is one, by an address or one of `hosts`, and not through a "
        "proxy that says so.",
    )


class Telemetry(Options):
    """Where traces and metrics go, and who may read metrics. The OTEL_* environment variables work as well; without an
    endpoint nothing is traced, and metrics are on `/metrics` alone.
    """

    otlp: HttpUrl | None = Field(
        default=None,
        description="OTLP/HTTP endpoint, e.g. http://127.0.0.1:4318; /v1/traces and /v1/metrics are added.",
    )
    headers: dict[str, HeaderSecret] = Field(default={}, description="Headers for the endpoint, e.g. its API key.")
    service_name: str | None = Field(
        default=None, description="The service.name of traces and metrics. Left out: OTEL_SERVICE_NAME, or interlingua."
    )
    traces: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s{}]*\{trace\}[^\s{}]*$",
        description="Where a person looks at a trace, {trace} standing for its id: the console links to it.",
    )
    monitors: OrEmpty[Monitors] = Field(
        default=Monitors(), description="Who else than this machine is told the agents' names by `/metrics`."
    )


class _Places(Document):
    """Where the keys of a file stand. Configs that say the same are equal, wherever they do."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Places)

    def __hash__(self) -> int:
        return hash(_Places)


class Config(Options):
    """A whole routes.yaml. Made by `load` and `loads` only: they fill in `inbound` and each `target` by adapter."""

    inbound: dict[str, SerializeAsAny[InboundOptions]] = Field(
        default={},
        description="Which protocols are served. Left out: all, at their own paths; `example` only if named.",
    )
    routes: tuple[Route, ...] = Field(default=(), description="The agents, in order of preference.")
    store: OrEmpty[StoreOptions] = Field(
        default=StoreOptions(), description="Where runs, threads and artifacts are kept."
    )
    webhooks: OrEmpty[WebhookOptions] = Field(
        default=WebhookOptions(), description="Rules for the callbacks that clients ask for."
    )
    public_url: HttpUrl | None = Field(
        default=None,
        description="The gateway's address as clients see it, for links. Its path is what a proxy puts in front of "
        "the gateway's own, and may pass on or take off. Left out: where it listens.",
    )
    hosts: tuple[Annotated[str, Field(pattern=HOST_NAME)], ...] = Field(
        default=(),
        description="Names by which clients reach the gateway, besides localhost, addresses and `public_url`'s; `*` "
        "stands for anything. Doors that ask nobody who he is refuse requests under other names. Left out: only where "
        "no other machine reaches the gateway.",
    )
    limits: OrEmpty[Limits] = Field(default=Limits(), description="What clients may ask of the gateway.")
    telemetry: OrEmpty[Telemetry] = Field(default=Telemetry(), description="Where traces go, and who may read metrics.")
    audit: OrEmpty[Audit] = Field(default=Audit(), description="How what governed agents do is recorded.")
    operators: OperatorOptions | None = Field(
        default=None,
        description="Who may use `/admin`: look at every run, answer and cancel it. Left out: whoever is on this "
        "machine, where the gateway listens on the loopback and neither `authentication` nor `public_url` is "
        "configured; else nobody.",
    )

    _adapters: Registry = PrivateAttr(default_factory=lambda: MappingProxyType({}))
    _path: Path | None = PrivateAttr(default=None)
    _places: _Places = PrivateAttr(default_factory=lambda: _Places("routes.yaml"))

    def shared_out(self, place: int, workers: int) -> "Config":
        """The config of one of several workers, by its place from 0: what a route and its agent may have is divided."""
        limits = self.limits.model_copy(update={"route": self.limits.route.shared_out(place, workers)})
        routes = tuple(route.shared_out(place, workers) for route in self.routes)
        return self.model_copy(update={"limits": limits, "routes": routes})

    def mistake(self, where: Where, message: str) -> Mistake:
        """A mistake in a key that shows only outside the file."""
        return self._places.mistake(where, message)

    @property
    def filled(self) -> Collection[str]:
        """The values that came from the environment."""
        return self._places.filled

    @property
    def adapters(self) -> Registry:
        """The registry that the file was read with."""
        return self._adapters

    @property
    def path(self) -> Path | None:
        """The file it was read from; None if it came from elsewhere."""
        return self._path

    @property
    def documents(self) -> tuple[Path, ...]:
        """The files that it names and that were read with it: what governs its routes."""
        bindings = [route.binding for route in self.routes if route.binding is not None]
        return tuple(dict.fromkeys(file for binding in bindings for file in binding.documents))

    @property
    def base(self) -> Path:
        """The directory that relative paths in the file start from."""
        return self._path.parent if self._path else Path.cwd()

    @classmethod
    def bound(cls, values: dict[str, Any], document: Document, adapters: Registry, path: Path | None) -> "Config":
        """The config of a document, of whose `values` targets and inbound sections are models already.

        Raises ValidationError.
        """
        return cls.model_validate(values)._read_from(document, adapters, path)

    def _read_from(self, document: Document, adapters: Registry, path: Path | None) -> "Config":
        self._places = _Places(document.file, lines=document.lines, filled=document.filled)
        self._adapters = MappingProxyType(dict(adapters))
        self._path = path
        return self
