"""`python -m bench [--quick] [--only PART] [--compare REF] [--no-fsync] [--json FILE]`.

Leaves with 1 if something broke; a missed target is no failure.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from bench import compare, report, sizes, wanted
from bench.measure import PARTS, measure
from bench.stage import Broken


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_const", dest="sizes", const="quick", help="less of everything")
    parser.add_argument("--sizes", choices=sizes.ALL, help="how much of everything")
    parser.set_defaults(sizes="full")
    parser.add_argument("--only", choices=PARTS, help="a part of it: the protocol that clients speak")
    parser.add_argument(
        "--no-fsync", action="store_false", dest="fsync", help="a store that does not wait for the disk"
    )
    parser.add_argument("--compare", metavar="REF", help="only this: this version and that commit, in turns")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures, every round of them, to FILE")
    options = parser.parse_args(argv)
    chosen = sizes.ALL[options.sizes]
    parts = [options.only] if options.only else PARTS
    began = time.monotonic()
    whole: dict[str, Any] = {"sizes": chosen.name, "machine": report.machine()}
    try:
        if options.compare:
            whole["figures"] = compare.compare(options.compare, chosen.compare, _told, parts, fsync=options.fsync)
        else:
            whole["figures"] = measure(chosen, _told, fsync=options.fsync, parts=parts)
            whole["targets"] = wanted.judged(whole["figures"])
    except Broken as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    whole["seconds"] = time.monotonic() - began
    print(compare.text(whole) if options.compare else report.text(whole))
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(whole), indent=1))
    return 0


def _told(what: str) -> None:
    print(f"  {what} ...", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
