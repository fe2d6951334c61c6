"""The commands of `interlingua`, which only parse and `configure` the log; each imports what it needs when it runs.

Exit codes: 0 success, 1 failed, 2 wrong usage or a wrong file, 3 the agent needs an answer, 130 cancelled.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer

from gateway.core.version import version

app = typer.Typer(
    name="interlingua",
    help="A gateway between the agent protocols called ACP: any client of one reaches any agent of another.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

audit_app = typer.Typer(help="Check an audit log.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(audit_app, name="audit")

Routes = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Run the agents of this route table here. [default: routes.yaml]")
]
Gateway = Annotated[str | None, typer.Option(metavar="URL", help="Use a running gateway instead.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="With --gateway: the token to show it. [default: $INTERLINGUA_TOKEN]"),
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error", "critical"],
    typer.Option(metavar="LEVEL", case_sensitive=False, help="debug, info, warning, error or critical."),
]


def _version(wanted: bool) -> None:
    if wanted:
        print(version())
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


TlsCert = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Serve https and wss with this certificate: PEM, intermediate ones behind it."),
]
TlsKey = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Its private key, PEM. $INTERLINGUA_TLS_PASSPHRASE opens an encrypted one."),
]


Workers = Annotated[int, typer.Option(min=1, max=64, metavar="N", help="Processes that share the port and the store.")]


@app.command()
def serve(
    routes: Annotated[Path, typer.Argument(help="The route table.")] = Path("routes.yaml"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8080,
    *,
    workers: Workers = 1,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    watch: Annotated[bool, typer.Option(help="Reload the routes, and the certificate, when a file changes.")] = True,
    log_level: LogLevel = "info",
    log_format: Annotated[
        Literal["text", "json"], typer.Option(help="json: an object a line, and no banner, for who collects logs.")
    ] = "text",
) -> None:
    """Serve the agents of a route table to the clients of every protocol.

    SIGHUP, or a change of a file, reloads the routes and the certificate without dropping a run or a connection. With
    several workers SIGUSR2 starts them anew, one by one.
    """
    signal.signal(signal.SIGTERM, _leave)
    greet, link = log_format == "text", None
    if workers > 1:
        from gateway.workers.link import WorkerLink

        link = WorkerLink.inherited()
    configure(log_level, log_format, None if link is None else link.number)
    if workers > 1 and link is None:
        from gateway.cli.listening import listen_often
        from gateway.workers.supervisor import supervise

        raise SystemExit(supervise(listen_often(host, port, workers), greet=greet))
    from gateway.cli.certificate import certificate
    from gateway.cli.serve import serve as work

    tls = certificate(tls_cert, tls_key)
    raise SystemExit(work(routes, host, port, tls=tls, watch=watch, greet=greet, link=link))


def _leave(number: int, frame: object) -> None:
    """SIGTERM before there is a gateway that handles it: the first process of a container would not notice."""
    raise SystemExit


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="The route table.")] = Path("routes.yaml"),
    host: Annotated[str, typer.Option(help="Address that it is to be served on.")] = "127.0.0.1",
    *,
    workers: Workers = 1,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    connect: Annotated[bool, typer.Option("--connect", help="Ask the agents, too, and compare.")] = False,
) -> None:
    """Say what is wrong with a route table (exit code 1), or what it says."""
    from gateway.cli.certificate import certificate
    from gateway.cli.check import check as work
    from gateway.cli.codes import FAILED

    raise SystemExit(work(file, host, certificate(tls_cert, tls_key, FAILED), workers=workers, connect=connect))


@app.command()
def agents(
    agent: Annotated[str | None, typer.Argument(help="Show this one: its input, and how it is called.")] = None,
    *,
    routes: Routes = None,
    gateway: Gateway = None,
    token_file: TokenFile = None,
    log_level: LogLevel = "warning",
) -> None:
    """List the agents of a route table or of a running gateway, or show what one of them wants."""
    configure(log_level)
    from gateway.cli.run import list_agents, show_agent

    raise SystemExit(
        list_agents(routes, gateway, token_file) if agent is None else show_agent(agent, routes, gateway, token_file)
    )


@app.command()
def run(
    agent: Annotated[str, typer.Argument(help="The agent's name.")],
    prompt: Annotated[
        str | None, typer.Argument(help="What to tell it; '-' reads standard input. [default: it is asked for]")
    ] = None,
    *,
    routes: Routes = None,
    gateway: Gateway = None,
    token_file: TokenFile = None,
    answer: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Answer to the agent's next question; may be repeated.")
    ] = None,
    document: Annotated[
        str | None, typer.Option("--input", metavar="FILE|JSON", help="Its whole input as JSON, instead of a prompt.")
    ] = None,
    files: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the files that it makes there.")] = None,
    log_level: LogLevel = "warning",
) -> None:
    """Run an agent and show its answer as it comes.

    Its questions are asked on the terminal, where Ctrl-C and Ctrl-D cancel the run. Without a terminal the exit code
    is 3: a run of a gateway waits there then, and it is said how to answer it; any other is cancelled.
    """
    configure(log_level)
    from gateway.cli.run import run_agent

    if prompt == "-":
        try:
            prompt = typer.get_binary_stream("stdin").read().decode()
        except UnicodeDecodeError as error:
            raise typer.BadParameter(f"standard input is not UTF-8: byte {error.start} is wrong") from None
    given = None
    if document is not None:
        if prompt is not None:
            raise typer.BadParameter("give a prompt or --input, not both")
        given = _document(document)
    elif prompt is None:
        prompt = ""
    raise SystemExit(
        run_agent(agent, prompt, routes, gateway, token_file, answers=answer or (), files=files, document=given)
    )


def _document(said: str) -> Any:
    """The JSON that an option gives, or that is in the file it names."""
    try:
        file = said.lstrip()[:1] not in ("{", "[", '"') and Path(said).exists()
        return json.loads(Path(said).read_text(encoding="utf-8") if file else said)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"--input {said[:60]}: {error}") from None


@app.command()
def stdio(
    agent: Annotated[str | None, typer.Argument(help="The agent's name. [default: the client chooses]")] = None,
    *,
    protocol: Annotated[
        str | None, typer.Option(metavar="NAME", help="What to speak. [default: what editors speak]")
    ] = None,
    routes: Routes = None,
    gateway: Gateway = None,
    token_file: TokenFile = None,
    log_level: LogLevel = "warning",
) -> None:
    """Be an agent on standard input and output, for an editor to start.

    Nothing but the protocol goes to standard output; the log goes to standard error.
    """
    configure(log_level)
    from gateway.cli.stdio import serve_stdio

    raise SystemExit(serve_stdio(agent, protocol, routes, gateway, token_file))


@app.command()
def revoke(
    agent: Annotated[str, typer.Argument(help="The agent's id, or its name.")],
    *,
    gateway: Annotated[str, typer.Option(metavar="URL", help="The running gateway.")],
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for the log and agent://status.")] = None,
    restore: Annotated[bool, typer.Option("--restore", help="Give the access back instead.")] = False,
    token_file: TokenFile = None,
    log_level: LogLevel = "warning",
) -> None:
    """Take an agent's access away: it gets no work and may do nothing any more, and its work is cancelled.

    An agent that registered is gone for clients of every protocol, one of the route table for those of Agent Context.
    Where that door has access control, the token's client needs the right `revoke`.
    """
    configure(log_level)
    from gateway.cli.remote import revoke_agent
    from gateway.cli.stdio import token

    raise SystemExit(revoke_agent(agent, gateway, token(gateway, token_file), reason=reason, restore=restore))


Run = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or its last characters.")]
AtGateway = Annotated[str, typer.Option(metavar="URL", help="The running gateway.")]
HERE = "http://127.0.0.1:8080"


def _operate(gateway: str, token_file: Path | None, work: Any) -> NoReturn:
    from gateway.cli.operate import operated
    from gateway.cli.stdio import token

    raise SystemExit(operated(gateway, token(gateway, token_file), work))


@app.command()
def runs(
    *,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Only runs of this agent.")] = None,
    status: Annotated[
        str | None,
        typer.Option(metavar="STATUS", help="Only these, with commas between them: running, interrupted ..."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="How many.")] = 20,
    gateway: AtGateway = HERE,
    token_file: TokenFile = None,
) -> None:
    """List the newest runs of a gateway, whoever started them. Away from a terminal: a line of JSON each."""
    from gateway.cli.operate import list_runs

    _operate(gateway, token_file, list_runs(agent, status, limit))


@app.command()
def watch(run: Run, *, gateway: AtGateway = HERE, token_file: TokenFile = None) -> None:
    """Print what happens in a run until it ends. Exit code 1 where it does not succeed."""
    from gateway.cli.operate import watch_run

    _operate(gateway, token_file, watch_run(run))


@app.command()
def answer(
    run: Run,
    text: Annotated[str | None, typer.Argument(metavar="ANSWER", help="A choice, a text, or JSON.")] = None,
    *,
    decline: Annotated[bool, typer.Option("--decline", help="Decline to answer instead.")] = False,
    gateway: AtGateway = HERE,
    token_file: TokenFile = None,
) -> None:
    """Answer the question that a run waits on. Exit code 3 where the answer does not fit: it waits on."""
    from gateway.cli.codes import USAGE, leave
    from gateway.cli.operate import answer_run

    if (text is None) != decline:
        leave(USAGE, "give an answer, or --decline")
    _operate(gateway, token_file, answer_run(run, text))


@app.command()
def cancel(
    run: Run,
    *,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why.")] = "",
    gateway: AtGateway = HERE,
    token_file: TokenFile = None,
) -> None:
    """Cancel a run."""
    from gateway.cli.operate import cancel_run

    _operate(gateway, token_file, cancel_run(run, reason))


@app.command()
def top(
    *,
    once: Annotated[bool, typer.Option("--once", help="Print the table once.")] = False,
    gateway: AtGateway = HERE,
    token_file: TokenFile = None,
) -> None:
    """Show the agents of a gateway, and how their runs go, until Ctrl-C."""
    from gateway.cli.operate import top as work

    _operate(gateway, token_file, work(once=once))


@app.command()
def manifest(
    agent: Annotated[str, typer.Argument(help="The agent's name.")],
    *,
    routes: Routes = None,
    log_level: LogLevel = "warning",
) -> None:
    """Print an ACP.md (AIP-44) for an agent: what it can do through this gateway, and what governs it."""
    configure(log_level)
    from gateway.cli.manifest import print_manifest

    raise SystemExit(print_manifest(agent, routes))


@app.command()
def schema() -> None:
    """Print the JSON Schema of routes.yaml, for editors."""
    from gateway import registry
    from gateway.config import schema as of

    print(json.dumps(of(registry.scan()), indent=2, ensure_ascii=False))


@audit_app.command("verify")
def audit_verify(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="The log's files, or the folder that they are in.")
    ],
    *,
    head: Annotated[
        str | None, typer.Option(metavar="SEQ:HASH", help="An entry that the log must hold, best its last.")
    ] = None,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="Take that entry from the gateway's store instead.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The log's name in the store. [default: the only one]")] = None,
    pointer: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Take it from a head pointer. [default: .well-known/head-pointer.json]",
        ),
    ] = None,
    keyring: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Public keys: check that the entries are signed.")
    ] = None,
    after: Annotated[
        str | None, typer.Option(metavar="SEQ:HASH", help="The entry before the first, if older files are elsewhere.")
    ] = None,
    any_form: Annotated[
        bool, typer.Option("--any-form", help="Take lines that are not canonical JSON: another program's log.")
    ] = False,
) -> None:
    """Find every line of an audit log that was changed, removed, moved, put in or cut off (exit code 1)."""
    from gateway.cli.audit import verify_log

    code = verify_log(
        files, head=head, store=store, name=name, pointer=pointer, keys=keyring, after=after, any_form=any_form
    )
    raise SystemExit(code)


@audit_app.command("keyring")
def audit_keyring(
    keys: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Ed25519 private keys, PEM.")],
) -> None:
    """Print the keyring of public keys that checks what these private keys sign."""
    from gateway.cli.audit import print_keyring

    raise SystemExit(print_keyring(keys))


PLAIN = "%(asctime)s %(levelname)s %(name)s: {worker}%(message)s"


class JsonFormatter(logging.Formatter):
    """One line of JSON: `time` (RFC 3339, UTC), `level`, `logger`, `message`, and `exception` where there is one.
    `worker` where there are several.
    """

    def __init__(self, worker: int | None) -> None:
        super().__init__()
        self._own = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        """See the class."""
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
