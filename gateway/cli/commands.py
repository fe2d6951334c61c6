"""The commands of `interlingua`, which only parse and `configure` the log; each imports what it needs when it runs.

Exit codes: 0 success, 1 failed, 2 wrong usage or a wrong file, 3 the agent needs an answer, 130 cancelled.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial, wraps
from pathlib import Path
from typing import Any, Literal, NoReturn

from click import BadParameter, Choice, Context, Group, IntRange, Parameter, argument, group, option
from click import Path as PathType

from gateway.cli.codes import CANCELLED, FAILED, USAGE, Place, leave
from gateway.core.errors import InterlinguaError, NotFound
from gateway.core.version import version


class CommandGroup(Group):
    """Its help names commands in the order of this file. What a command raises becomes one line and an exit code."""

    group_class = type

    def invoke(self, ctx: Context) -> Any:
        """See the class. Click's own answer to Ctrl-C is that of a failure."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            leave(CANCELLED, "cancelled")
        except InterlinguaError as error:
            leave(USAGE if isinstance(error, NotFound) else FAILED, str(error))

    def list_commands(self, ctx: Context) -> list[str]:
        return list(self.commands)


def _version(context: Context, _: Parameter, wanted: bool) -> None:
    if wanted:
        print(version())
        context.exit()


@group(cls=CommandGroup, context_settings={"show_default": True})
@option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version.")
def app() -> None:
    """A gateway between the agent protocols called ACP: any client of one reaches any agent of another."""


def _address(context: Context, parameter: Parameter, url: str | None) -> str | None:
    """Refuse what is no address. Whether a gateway is there is told by whoever asks."""
    from urllib.parse import urlsplit

    if url is None:
        return None
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - that is where it is read
    except ValueError as error:
        raise BadParameter(f"{url} is no URL: {error}") from None
    if parts.scheme not in ("http", "https", "ws", "wss") or not parts.hostname:
        meant = f"http://{url}" if url and "/" not in url else HERE
        raise BadParameter(f"{url!r} is no http:// URL like {meant}, and no https:// one")
    return url


def _text(context: Context, parameter: Parameter, given: Any) -> Any:
    """Refuse a text, or one of several, whose bytes were not UTF-8: Python has surrogates for them."""
    try:
        "".join(given or ()).encode()
    except UnicodeEncodeError:
        raise BadParameter("not UTF-8") from None
    return given


PATH = PathType(path_type=Path)
LEVELS = Choice(["debug", "info", "warning", "error", "critical"], case_sensitive=False)
HERE = "http://127.0.0.1:8080"
file_option = partial(option, type=PATH, metavar="FILE")
level_option = partial(
    option, "--log-level", type=LEVELS, metavar="LEVEL", help="debug, info, warning, error or critical."
)

routes_file = file_option("--routes", help="Run the agents of this route table here. [default: routes.yaml]")
some_gateway = option("--gateway", metavar="URL", callback=_address, help="Use a running gateway instead.")
this_gateway = option("--gateway", default=HERE, metavar="URL", callback=_address, help="The running gateway.")
token_file = file_option("--token-file", help="With --gateway: the token to show it. [default: $INTERLINGUA_TOKEN]")
log_level = level_option(default="warning")
workers = option(
    "--workers", type=IntRange(1, 64), default=1, metavar="N", help="Processes that share the port and the store."
)
tls_cert = file_option(
    "--tls-cert", help="Serve https and wss with this certificate: PEM, intermediate ones behind it."
)
tls_key = file_option("--tls-key", help="Its private key, PEM. $INTERLINGUA_TLS_PASSPHRASE opens an encrypted one.")


def placed(command: Callable[..., None]) -> Callable[..., None]:
    """What these options say is the command's `place`."""

    @wraps(command)
    def called(*, gateway: str | None, token_file: Path | None, routes: Path | None = None, **given: Any) -> None:
        command(place=Place(routes, gateway, token_file), **given)

    return called


def somewhere(command: Callable[..., None]) -> Callable[..., None]:
    """A command with agents here or in a running gateway."""
    return routes_file(some_gateway(token_file(placed(command))))


def operating(command: Callable[..., None]) -> Callable[..., None]:
    """A command for a running gateway's operator."""
    return this_gateway(token_file(placed(command)))


one_run = argument("run", metavar="RUN", help="The run's id, or its last characters.")


@app.command()
@argument("routes", type=PATH, default=Path("routes.yaml"), help="The route table. [default: routes.yaml]")
@option("--host", default="127.0.0.1", help="Address to listen on.")
@option("--port", type=IntRange(0, 65535), default=8080, help="Port to listen on; 0 takes a free one.")
@workers
@tls_cert
@tls_key
@option("--watch/--no-watch", default=True, help="Reload the routes, and the certificate, when a file changes.")
@level_option(default="info")
@option(
    "--log-format",
    type=Choice(["text", "json"]),
    default="text",
    help="json: an object a line, and no banner, for who collects logs.",
)
def serve(
    routes: Path,
    host: str,
    port: int,
    *,
    workers: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    watch: bool,
    log_level: str,
    log_format: Literal["text", "json"],
) -> None:
    """Serve a route table's agents to clients of every protocol.

    SIGHUP, or a change of a file, reloads the routes and the certificate without dropping a run or a connection. With
    several workers SIGUSR2 starts them anew, one by one.
    """
    greet, link = log_format == "text", None
    if workers > 1:
        from gateway.workers.link import WorkerLink

        link = WorkerLink.inherited()
    configure(log_level, log_format, None if link is None else link.number)
    if workers > 1 and link is None:
        from gateway.cli.listening import listen_often
        from gateway.workers.supervisor import supervise

        raise SystemExit(supervise(listen_often(host, port, workers), greet=greet))
    from gateway.cli.listening import certificate
    from gateway.cli.serve import serve as work

    tls = certificate(tls_cert, tls_key)
    raise SystemExit(work(routes, host, port, tls=tls, watch=watch, greet=greet, link=link))


@app.command()
@argument("file", type=PATH, default=Path("routes.yaml"), help="The route table. [default: routes.yaml]")
@option("--host", default="127.0.0.1", help="Address that it is to be served on.")
@workers
@tls_cert
@tls_key
@option("--connect", is_flag=True, help="Ask the agents, too, and compare.")
def check(file: Path, host: str, *, workers: int, tls_cert: Path | None, tls_key: Path | None, connect: bool) -> None:
    """Say what a route table says, or what is wrong with it.

    The exit code is 1 where something is wrong, and with --connect where an agent does not answer.
    """
    configure("error")  # what would be a warning is told as a caution
    from gateway.cli.check import check as work
    from gateway.cli.listening import certificate

    raise SystemExit(work(file, host, certificate(tls_cert, tls_key, FAILED), workers=workers, connect=connect))


@app.command()
@argument("agent", required=False, help="Show this one: its input, and how it is called.")
@somewhere
@log_level
def agents(agent: str | None, place: Place, log_level: str) -> None:
    """List the agents, or show what one of them wants."""
    configure(log_level)
    if agent is not None:
        _once(log_level)
    from gateway.cli.run import list_agents, show_agent

    raise SystemExit(list_agents(place) if agent is None else show_agent(agent, place))


@app.command()
@argument("agent", help="The agent's name.")
@argument(
    "prompt",
    required=False,
    callback=_text,
    help="What to tell it; '-' reads standard input. [default: it is asked for]",
)
@somewhere
@option(
    "--answer",
    multiple=True,
    metavar="TEXT",
    callback=_text,
    help="Answer to the agent's next question; may be repeated.",
)
@option("--input", "document", metavar="FILE|JSON", help="Its whole input as JSON, instead of a prompt.")
@option("--files", type=PATH, metavar="DIR", help="Keep the files that it makes there.")
@log_level
def run(
    agent: str,
    prompt: str | None,
    *,
    place: Place,
    answer: Sequence[str],
    document: str | None,
    files: Path | None,
    log_level: str,
) -> None:
    """Run an agent and show its answer as it comes.

    Its questions are asked on the terminal, where Ctrl-C and Ctrl-D cancel the run. Without a terminal the exit code
    is 3: a run of a gateway waits there then, and it is said how to answer it; any other is cancelled.
    """
    configure(log_level)
    _once(log_level)
    from gateway.cli.run import run_agent

    if prompt == "-":
        try:
            prompt = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError as error:
            raise BadParameter(f"standard input is not UTF-8: byte {error.start} is wrong") from None
    given = None
    if document is not None:
        if prompt is not None:
            raise BadParameter("give a prompt or --input, not both")
        given = _document(document)
    elif prompt is None:
        prompt = ""
    raise SystemExit(run_agent(agent, prompt, place, answers=answer, files=files, document=given))


def _document(said: str) -> Any:
    """The JSON that an option gives, or that is in the file it names."""
    file, named = False, said.lstrip()[:1] not in ("{", "[", '"')
    try:
        file = named and Path(said).exists()
        return json.loads(Path(said).read_text(encoding="utf-8") if file else said)
    except (OSError, ValueError) as error:
        if named and not file:
            raise BadParameter(f"--input {said[:60]}: there is no such file, and it is no JSON") from None
        raise BadParameter(f"--input {said[:60]}: {error}") from None


@app.command()
@argument("agent", required=False, help="The agent's name. [default: the client chooses]")
@option("--protocol", metavar="NAME", help="What to speak. [default: what editors speak]")
@somewhere
@log_level
def stdio(agent: str | None, *, protocol: str | None, place: Place, log_level: str) -> None:
    """Be an agent on standard input and output, for an editor.

    Nothing but the protocol goes to standard output; the log goes to standard error.
    """
    configure(log_level)
    from gateway.cli.stdio import serve_stdio

    raise SystemExit(serve_stdio(agent, protocol, place))


@app.command()
@argument("agent", help="The agent's id, or its name.")
@option("--gateway", required=True, metavar="URL", callback=_address, help="The running gateway.")
@option("--reason", metavar="TEXT", callback=_text, help="Why, for the log and agent://status.")
@option("--restore", is_flag=True, help="Give the access back instead.")
@token_file
@log_level
@placed
def revoke(agent: str, *, reason: str | None, restore: bool, place: Place, log_level: str) -> None:
    """Take an agent's access away in Agent Context, or give it back.

    It gets no work and may do nothing any more, and its work is cancelled. An agent that registered is gone for clients
    of every protocol, one of the route table only for those of Agent Context. Where that door has access control, the
    token's client needs the right `revoke`.
    """
    configure(log_level)
    from gateway.cli.remote import revoke_agent

    raise SystemExit(revoke_agent(agent, place.url, place.token(), reason=reason, restore=restore))


def _operate(place: Place, work: Any, *given: Any, **options: Any) -> NoReturn:
    from gateway.cli import loop
    from gateway.cli.operate import AdminClient

    raise SystemExit(loop.run(work(AdminClient(place.url, place.token()), *given, **options)))


@app.command()
@option("--agent", metavar="NAME", help="Only runs of this agent.")
@option("--status", metavar="STATUS", help="Only these, with commas between them: running, interrupted ...")
@option("--limit", type=IntRange(1, 500), default=20, help="How many.")
@operating
def runs(agent: str | None, status: str | None, limit: int, place: Place) -> None:
    """List the newest runs of a gateway, whoever started them. Away from a terminal: a line of JSON each."""
    from gateway.cli.operate import list_runs

    _operate(place, list_runs, agent, status, limit)


@app.command()
@one_run
@operating
def watch(run: str, place: Place) -> None:
    """Print what happens in a run until it ends. Exit code 1 where it does not succeed."""
    from gateway.cli.operate import watch_run

    _operate(place, watch_run, run)


@app.command()
@one_run
@argument("text", required=False, metavar="[ANSWER]", callback=_text, help="A choice, a text, or JSON.")
@option("--decline", is_flag=True, help="Decline to answer instead.")
@operating
def answer(run: str, text: str | None, *, decline: bool, place: Place) -> None:
    """Answer the question that a run waits on. Exit code 3 where the answer does not fit: it waits on."""
    from gateway.cli.operate import answer_run

    if (text is None) != decline:
        leave(USAGE, "give an answer, or --decline")
    _operate(place, answer_run, run, text)


@app.command()
@one_run
@option("--reason", default="", show_default=False, metavar="TEXT", callback=_text, help="Why.")
@operating
def cancel(run: str, reason: str, place: Place) -> None:
    """Cancel a run."""
    from gateway.cli.operate import cancel_run

    _operate(place, cancel_run, run, reason)


@app.command()
@option("--once", is_flag=True, help="Print the table once.")
@operating
def top(*, once: bool, place: Place) -> None:
    """Show how a gateway's agents and runs do, until Ctrl-C."""
    from gateway.cli.operate import top as work

    _operate(place, work, once=once)


@app.command()
@argument("agent", help="The agent's name.")
@routes_file
@log_level
def manifest(agent: str, routes: Path | None, log_level: str) -> None:
    """Print an ACP.md (AIP-44) for an agent.

    It says what the agent can do through this gateway, and what governs it.
    """
    configure(log_level)
    from gateway.cli.run import print_manifest

    raise SystemExit(print_manifest(agent, routes))


@app.command()
def schema() -> None:
    """Print the JSON Schema of routes.yaml, for editors."""
    from gateway import registry
    from gateway.config import schema as of

    print(json.dumps(of(registry.scan()), indent=2, ensure_ascii=False))


@app.group()
def audit() -> None:
    """Check an audit log."""


@audit.command("verify")
@argument(
    "files",
    type=PATH,
    nargs=-1,
    required=True,
    metavar="FILE...",
    help="The log's files, or the folder that they are in.",
)
@option("--head", metavar="SEQ:HASH", help="An entry that the log must hold, best its last.")
@option("--store", metavar="URL", help="Take that entry from the gateway's store instead.")
@option("--name", help="The log's name in the store. [default: the only one]")
@file_option("--pointer", help="Take it from a head pointer. [default: .well-known/head-pointer.json]")
@file_option("--keyring", help="Public keys: check that the entries are signed.")
@option("--after", metavar="SEQ:HASH", help="The entry before the first, if older files are elsewhere.")
@option("--any-form", is_flag=True, help="Take lines that are not canonical JSON: another program's log.")
def audit_verify(files: Sequence[Path], *, keyring: Path | None, **how: Any) -> None:
    """Find what was changed in an audit log.

    That is every line that was changed, removed, moved, put in or cut off. The exit code is 1 where there is one.
    """
    from gateway.cli.audit import verify_log

    raise SystemExit(verify_log(files, keys=keyring, **how))


@audit.command("keyring")
@argument("keys", type=PATH, nargs=-1, required=True, metavar="FILE...", help="Ed25519 private keys, PEM.")
def audit_keyring(keys: Sequence[Path]) -> None:
    """Print the public keys that check what private keys sign."""
    from gateway.cli.audit import print_keyring

    raise SystemExit(print_keyring(keys))


def _once(level: str) -> None:
    """Log no failure that says only what the command ends with, unless more than warnings is wanted."""
    if level != "warning":
        return

    def more(record: logging.LogRecord) -> bool:
        told = isinstance(record.args, tuple) and any(isinstance(it, InterlinguaError) for it in record.args)
        return not told or record.getMessage().count("\n") > 1

    for name in ("gateway.agents.entry", "gateway.transport.stdio.supervisor"):
        logging.getLogger(name).addFilter(more)


PLAIN = "%(asctime)s %(levelname)s %(name)s: {worker}%(message)s"


class JsonFormatter(logging.Formatter):
    """One line of JSON: `time` (RFC 3339, UTC), `level`, `logger`, `message`, and `exception` where there is one.
    `worker` where there are several.
    """

    def __init__(self, worker: int | None) -> None:
        super().__init__()
        self._own = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, str | int] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._own,
        }
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


def configure(level: str, form: Literal["text", "json"] = "text", worker: int | None = None) -> None:
    """Send everything from `level` up to stderr: coloured on a terminal, else plain lines, or JSON. `worker`: which
    one of several processes this is.
    """
    marked = "" if worker is None else f"[{worker}] "
    handler: logging.Handler
    if form == "json":
        handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter(worker))
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.logging import RichHandler

        handler = RichHandler(console=Console(stderr=True), show_path=False, log_time_format="%H:%M:%S")
        handler.setFormatter(logging.Formatter(f"{marked}%(message)s"))
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(PLAIN.format(worker=marked)))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # these tell of every request
    for name in ("uvicorn", "httpx2", "httpcore2", "watchfiles", "websockets", "asyncio"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))
