"""What curl does with a command that the gateway prints: few machines lack curl, but some do."""

from __future__ import annotations

import shlex

import httpx2


def curl(line: str) -> httpx2.Response:
    """Send what the command would, as a shell reads it. ValueError for an option that is not known here."""
    program, *words = shlex.split(line)
    if program != "curl":
        raise ValueError(f"no curl: {line}")
    urls: list[str] = []
    method, body, headers = "", None, {"accept": "*/*"}
    rest = iter(words)
    for word in rest:
        if word == "-H":
            name, _, value = next(rest).partition(": ")
            headers[name] = value
        elif word == "-d":
            body = next(rest)
        elif word == "-X":
            method = next(rest)
        elif word.startswith("-") and word != "-s":
            raise ValueError(f"{word} is not known here: {line}")
        elif word != "-s":
            urls.append(word)
    (url,) = urls
    if body is not None:  # curl's own, where no other is named
        headers = {"content-type": "application/x-www-form-urlencoded", **headers}
    with httpx2.Client(trust_env=False, timeout=60) as client:
        return client.request(method or ("GET" if body is None else "POST"), url, content=body, headers=headers)
