"""Takes the README's pictures of the console: `make screenshots`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import httpx2

from tests.admin.test_console import pictures, served
from tests.support.processes import ROOT

FOLDER = ROOT / "docs" / "pictures"

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as scratch,
        served(Path(scratch)) as gateway,
        httpx2.Client(base_url=gateway.url, trust_env=False, timeout=120) as http,
    ):
        for picture in pictures(gateway, http, FOLDER):
            print(picture.relative_to(ROOT))
