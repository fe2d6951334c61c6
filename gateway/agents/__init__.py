"""Which agents there are, and which route a run takes.

roster.py      every agent there is now: from the route table, found at targets, hosted by clients, created
entry.py       what an agent is: its target's description under its route's own words
hosts.py       agents that inbound halves bring
router.py      the choice of a route
"""
