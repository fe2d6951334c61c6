"""Runs an example of the SDK at another address than the one it has in its source.

`agent_client_address.py FILE HOST:PORT/PATH`: the example's own `localhost:8000/acp`, and `localhost:8000` by itself,
become that, in memory; nothing else is changed.
"""

import sys
from pathlib import Path


def main() -> None:
    file, address = Path(sys.argv[1]), sys.argv[2]
    source = file.read_text(encoding="utf-8")
    assert "localhost:8000" in source, f"{file.name} has no address of its own"
    source = source.replace("localhost:8000/acp", address).replace("localhost:8000", address.split("/")[0])
    sys.argv = [str(file)]
    exec(compile(source, str(file), "exec"), {"__name__": "__main__", "__file__": str(file)})


if __name__ == "__main__":
    main()
