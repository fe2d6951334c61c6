"""Several gateway processes on one port: a supervisor that starts and replaces them, and its link to each.

    supervisor.py      the parent: it serves nobody, knows no config, and outlives its workers
    link.py            a worker's end: what it was given, and what it and the supervisor say to each other
    messages.py        what they say
    session_router.py  between workers: a request goes to the one that has its session

A worker is the same program with the same arguments, and `INTERLINGUA_WORKER` in its environment.
"""
