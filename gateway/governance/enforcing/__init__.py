"""Enforces the rules: an agent's acts are decided, recorded and approved before they are shown.

    enforcement.py  `Enforcement`: one per gateway; opens the audit logs, makes the `RouteGovernor`s
    journal.py    one audit log, the states of its sessions, and the budgets of its policies
    restoring.py  restores from a log what was spent and what has no end
    session.py    records one session
    governor.py   `RouteGovernor`: a route's rules for adapters (gateway/contract/governing.py)
    calls.py      one tool call: its facts and the table of its phases
    approval.py   the question about it, and the people whose answers count
    host.py       the part of a run that its gate uses
    judge.py      decides the calls of a run, records the decisions, asks approvers
    gate.py       `RunGate`: holds back the events of the run until their calls are decided

The engine's half is gateway/runs/governed.py. docs/governance.md says what is enforced, and how.
"""

from __future__ import annotations

from gateway.governance.enforcing.enforcement import Enforcement
from gateway.governance.enforcing.gate import RunGate
from gateway.governance.enforcing.governor import RouteGovernor
from gateway.governance.enforcing.host import GateHost

__all__ = ["Enforcement", "GateHost", "RouteGovernor", "RunGate"]
