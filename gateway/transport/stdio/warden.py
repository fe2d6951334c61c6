"""Runs one agent and ends all of its processes, even if the gateway is killed.

    python -I -S warden.py LIFELINE EOF_GRACE TERM_GRACE program [argument ...]

`process.py` starts it for each agent, with the agent's own stdin, stdout and stderr, which it passes on and closes:
no message passes through it. It is one file and imports little of the standard library, since every agent pays for
its start and its memory.

LIFELINE is a socket to the gateway. It carries lines to the gateway: `started PID`, `failed ERRNO`, `exited STATUS`
(a wait status) of the agent's main process. When it ends at the gateway's side, because the gateway wants the agent to
end or was killed (the agent's stdin is then closed too), the agent gets EOF_GRACE seconds to exit by itself, then
SIGTERM, TERM_GRACE seconds, SIGKILL. When the main process has ended, the rest of its tree gets SIGTERM at once. A
SIGTERM to the warden does the same.

On Linux the warden is a child subreaper: whatever a descendant does to get away (setsid, a double fork), it stays a
descendant, and the tree is gone when the warden has no child left. Elsewhere it is the agent's process group alone.
"""

import os
import select
import sys
import time

try:
    import _signal as signal  # type: ignore[import-not-found] # `signal` makes enums of it all, a third more of the start
except ImportError:
    import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PR_SET_CHILD_SUBREAPER = 36
KILL_FOR = 5.0
KILL_GROUP_FOR = 0.5  # its dead may stay listed for as long as init likes
STEP = 0.02
# Python ignores two of these, a shell or a service manager perhaps others, and an ignored signal stays ignored in the
# agent.
DEFAULTS = "HUP INT QUIT PIPE ALRM TERM USR1 USR2 CHLD TSTP TTIN TTOU XFSZ"


def become_subreaper() -> bool:
    """Become the parent of orphans among our descendants. Returns whether that is possible."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        import _ctypes  # what `ctypes` is made of, again a third less

        prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
        done = _ctypes.call_function(prctl, (PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
    except (ImportError, AttributeError, OSError):
        try:
            import ctypes

            done = ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        except (ImportError, AttributeError, OSError):
            return False
    return done == 0 and os.path.exists("/proc/self/stat")


def descendants() -> dict[int, int]:
    """List every process below this one, with its id and its group's."""
    children: dict[int, list[tuple[int, int]]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append((int(name), int(fields[2])))
    found: dict[int, int] = {}
    below = [os.getpid()]
    while below:
        for pid, group in children.get(below.pop(), ()):
            found[pid] = group
            below.append(pid)
    return found


class Warden:
    """One agent. `run` returns the warden's exit code: the agent's own, or 128 plus its signal."""

    def __init__(self, lifeline: int, eof_grace: float, term_grace: float) -> None:
        self.lifeline = lifeline
        self.eof_grace = eof_grace
        self.term_grace = term_grace
        self.subreaper = become_subreaper()
        self.agent = 0
        self.code: int | None = None
        self.phase = 0  # 0 running, 1 asked to leave, 2 told, 3 killed
        self.deadline: float | None = None
        self.give_up = 0.0

    def run(self, command: list[str]) -> int:
        """Start the agent, watch it, end its tree."""
        os.set_inheritable(self.lifeline, False)
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        for name in ("CHLD", "TERM", "INT", "HUP"):
            signal.signal(getattr(signal, "SIG" + name), lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        try:
            self.agent = start(command)
        except OSError as error:
            self.tell(f"failed {error.errno}")
            return 127
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(nowhere, 1)
        self.tell(f"started {self.agent}")
        try:
            self.watch(woken)
        except BaseException:
            self.hit(signal.SIGKILL)
            raise
        return 1 if self.code is None else self.code

    def watch(self, woken: int) -> None:
        """Wait until the tree is gone, or cannot be ended."""
        poll = select.poll()
        poll.register(self.lifeline, select.POLLIN)
        poll.register(woken, select.POLLIN)
        while not self.reap():
            now = time.monotonic()
            if self.deadline is not None and now >= self.deadline:
                if self.phase == 3 and now >= self.give_up:
                    return
                self.escalate(now)
            wait = None if self.deadline is None else max(0.0, self.deadline - now)
            if self.phase >= 2 and not self.subreaper:
                wait = STEP  # nobody tells when the last of a group has gone
            for number, _ in poll.poll(None if wait is None else int(wait * 1000) + 1):
                if number == woken:
                    if any(byte != signal.SIGCHLD for byte in os.read(woken, 512)) and self.phase < 2:
                        self.escalate(now, to=2)
                elif not self.listen():
                    poll.unregister(self.lifeline)
                    if self.phase == 0:
                        self.phase, self.deadline = 1, time.monotonic() + self.eof_grace

    def escalate(self, now: float, to: int = 0) -> None:
        """Take the next harder measure. Killing is repeated, for processes forked meanwhile."""
        self.phase, before = to or min(self.phase + 1, 3), self.phase
        if self.phase == 2:
            self.hit(signal.SIGTERM)
            self.deadline = now + self.term_grace
        else:
            self.hit(signal.SIGKILL)
            self.deadline = now + STEP
            if before < 3:
                self.give_up = now + (KILL_FOR if self.subreaper else KILL_GROUP_FOR)

    def hit(self, number: int) -> None:
        """Signal each process of the tree once."""
        if not self.subreaper:
            send(os.killpg, self.agent, number)
            return
        tree = descendants()
        if self.agent in tree.values():  # in use by ours, so it is nobody else's; the group at once, since it may fork
            send(os.killpg, self.agent, number)
        for pid, group in tree.items():
            if group != self.agent:
                send(os.kill, pid, number)

    def reap(self) -> bool:
        """Reap ended processes. Returns True when none is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return self.subreaper or not send(os.killpg, self.agent, 0)
            if pid == 0:
                return False
            if pid == self.agent:
                self.code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
                self.tell(f"exited {status}")
                if self.phase < 2:
                    self.phase, self.deadline = 1, time.monotonic()

    def listen(self) -> bool:
        """Read the lifeline. Returns False at its end."""
        try:
            return bool(os.read(self.lifeline, 512))
        except OSError:
            return False

    def tell(self, line: str) -> None:
        """Report to the gateway, if it is still there."""
        try:  # noqa: SIM105 - contextlib costs an import
            os.write(self.lifeline, line.encode() + b"\n")
        except OSError:
            pass


def start(command: list[str]) -> int:
    """Start the agent in a session of its own, without our descriptors. Raises OSError as exec would."""
    defaults = [getattr(signal, "SIG" + name) for name in DEFAULTS.split()]
    try:
        return os.posix_spawnp(command[0], command, os.environ, setsid=True, setsigmask=(), setsigdef=defaults)
    except NotImplementedError:
        return os.posix_spawnp(command[0], command, os.environ, setpgroup=0, setsigmask=(), setsigdef=defaults)


def send(kill: "Callable[[int, int], None]", target: int, number: int) -> bool:
    """Signal a process. Returns False if it is gone."""
    try:
        kill(target, number)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    code = Warden(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])).run(sys.argv[4:])
    os._exit(code)
