"""Mutation tests: `make mutants ROOM=gateway/access` changes a room's code in one place at a time, and lists
the changes that no test of the room notices.

mutate.py     the changes of one file
forks.py      the pytest plugin that tries them: each in a process forked off after collection
mutants.toml  the tests of each room, and every change that may survive, with the reason
__main__.py   the command; exit code 1 when a change survives and mutants.toml does not say why

The tree is never written to: a changed function replaces the original one in the memory of the forked process, and a
changed module is compiled from memory when that process imports it. Programs that a test starts run unchanged code.
"""
