#!/bin/sh
# What npx and its like become at their worst: ignores SIGTERM and the end of input, and has descendants in sessions of
# their own, one of them orphaned at once (a double fork), that do likewise and hold all pipes open.
trap '' TERM HUP INT
hold='trap "" TERM HUP INT; echo up; while :; do sleep 1000; done'
setsid sh -c "$hold" &
sh -c 'setsid sh -c "$1" & exit 0' sh "$hold"
sh -c "$hold" &
while :; do sleep 1000; done
