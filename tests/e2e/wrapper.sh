#!/bin/sh
# A wrapper as agents have them, at its worst: it ignores SIGTERM and the end of its input, lives on when the agent has
# ended, and leaves a grandchild in a session of its own that does the same.
trap '' TERM
setsid sh -c "trap '' TERM; while :; do sleep 1000; done" >/dev/null 2>&1 &
"$@"
while :; do sleep 1000; done
