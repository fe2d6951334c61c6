"""Enforces the rules: an agent's acts are decided, recorded and approved before they are shown.

    enforcement.py  `Enforcement`: one per gateway; opens the audit logs, makes the `RouteGovernor`s
    outbound.py     `governed`: wraps the outbound half of a route
    governed_run.py `GovernedRun`: one run, between the engine and the half that is wrapped
    governor.py     `RouteGovernor`: a route's rules for adapters (gateway/contract/governing.py)
    gate.py         `RunGate`: holds back the events of the run until their calls are decided
    judge.py        decides the calls of a run, records the decisions, asks approvers
    calls.py        one tool call: its facts, the table of its phases, the question about it, whose answers count
    session.py      records one session
    journal.py      one audit log, the states of its sessions, and the budgets of its policies
    restoring.py    restores from a log what was spent and what has no end

The engine knows none of it (gateway/contract/interception.py). docs/governance.md says what is enforced, and how.
"""

from __future__ import annotations

from gateway.governance.enforcing.enforcement import Enforcement
from gateway.governance.enforcing.governor import RouteGovernor
from gateway.governance.enforcing.outbound import GovernedOutbound
