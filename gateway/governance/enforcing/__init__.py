"""The rules at work: what an agent wants is decided, audited and asked before anybody is shown it.

    enforcement.py  `Enforcement`: one a gateway; opens the audit logs, makes a `RouteGovernor` for each governed route
    journal.py    one audit log, the states of its sessions, and the budgets of its policies
    reopened.py   what a log says when it is opened again: what was spent, what has no end
    session.py    what is recorded of one session
    governor.py   `RouteGovernor`: what adapters may ask of a route's rules (gateway/contract/governing.py)
    calls.py      one tool call: what is known of it, and how far it has come
    twins.py      calls that an agent speaks of in two ways
    approval.py   the question whether it may be made, and whose answer counts
    host.py       the run, as its gate needs it
    preface.py    what the agent of a session is told before what was asked
    judge.py      what becomes of the calls of a run: decided, audited, asked
    gate.py       `Gate`: that, and the queue that every event of the run passes

The engine's half is gateway/runs/governed.py. docs/governance.md says what is enforced, and how.
"""

from __future__ import annotations

from gateway.governance.enforcing.enforcement import Enforcement
from gateway.governance.enforcing.gate import Gate
from gateway.governance.enforcing.governor import RouteGovernor
from gateway.governance.enforcing.host import Host

__all__ = ["Enforcement", "Gate", "Host", "RouteGovernor"]
