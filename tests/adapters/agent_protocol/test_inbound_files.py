"""Artifacts: uploads, downloads and lists, as a client of the inbound half sees them."""

from __future__ import annotations

import tempfile
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from adapters.agent_protocol.codec import disposition, file_label, media_type
from gateway.core import events as e
from tests.adapters.agent_protocol.support import echo, serving
from tests.support.aio import run


async def painter(context: Any) -> None:
    """An agent that makes a file."""
    await context.add_artifact("out.txt", b"made", media_type="text/plain", relative_path="a/b")
    context.emit(e.RunFinished())
    await context.drain()


async def test_an_uploaded_file_comes_back_as_it_was() -> None:
    async with serving(echo) as (client, _):
        task = await client.task()
        files = {"file": ("up.txt", b"up\x00loaded", "text/plain")}
        made = await client.call("POST", f"/tasks/{task}/artifacts", files=files, data={"relative_path": "sub/dir"})
        assert made.status_code == 200
        artifact = made.json()
        told = {"agent_created": False, "file_name": "up.txt", "relative_path": "sub/dir"}
        made_at = {name: artifact[name] for name in ("created_at", "modified_at")}
        assert all(datetime.fromisoformat(at).tzinfo is UTC for at in made_at.values())
        assert artifact == told | {"artifact_id": artifact["artifact_id"]} | made_at
        got = await client.call("GET", f"/tasks/{task}/artifacts/{artifact['artifact_id']}")
        assert got.content == b"up\x00loaded"
        assert got.headers["content-type"] == "text/plain"
        assert got.headers["content-disposition"] == 'attachment; filename="up.txt"'
        assert got.headers["x-content-type-options"] == "nosniff"
        assert got.headers["content-length"] == "9"
        assert (await client.get(f"/tasks/{task}"))["artifacts"] == [artifact]
        assert (await client.get(f"/tasks/{task}/artifacts"))["artifacts"] == [artifact]


async def test_the_agents_files_belong_to_the_step_and_the_task() -> None:
    async with serving(painter) as (client, _):
        task = await client.task()
        step = await client.step(task)
        (artifact,) = step["artifacts"]
        assert artifact["agent_created"] and artifact["created_at"] and artifact["modified_at"]
        assert (artifact["file_name"], artifact["relative_path"]) == ("out.txt", "a/b")
        assert step["additional_output"] is None
        assert (await client.get(f"/tasks/{task}"))["artifacts"] == [artifact]
        got = await client.call("GET", f"/tasks/{task}/artifacts/{artifact['artifact_id']}")
        assert got.content == b"made"


async def test_artifacts_come_in_pages() -> None:
    async with serving(echo) as (client, _):
        task = await client.task()
        for n in range(3):
            await client.call("POST", f"/tasks/{task}/artifacts", files={"file": (f"{n}.txt", b"x")})
        page = await client.get(f"/tasks/{task}/artifacts?current_page=2&page_size=2")
        assert [a["file_name"] for a in page["artifacts"]] == ["2.txt"]
        assert page["pagination"] == {"total_items": 3, "total_pages": 2, "current_page": 2, "page_size": 2}


@pytest.mark.parametrize(
    "path", ["../up", "a/../../b", "..", "/etc", "C:/windows", "c:up", "a\\b", "..\\up", "a\x00b", "a\nb", "x" * 1025]
)
async def test_a_path_that_may_lead_out_is_refused_and_nothing_is_kept(path: str) -> None:
    async with serving(echo) as (client, _):
        task = await client.task()
        files = {"file": ("up.txt", b"x")}
        response = await client.call("POST", f"/tasks/{task}/artifacts", files=files, data={"relative_path": path})
        assert response.status_code == 422
        assert "relative_path" in response.json()["message"]
        assert (await client.get(f"/tasks/{task}"))["artifacts"] == []


@pytest.mark.parametrize(
    ("given", "label"),
    [
        ("../../etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("/", "file"),
        ("..", "file"),
        ("", "file"),
        (None, "file"),
        ("a\r\nb\x00.txt", "ab.txt"),
        ("x" * 300 + ".txt", "x" * 251 + ".txt"),
        ("früh stück.txt", "früh stück.txt"),
    ],
)
def test_a_file_name_is_a_label(given: str | None, label: str) -> None:
    assert file_label(given) == label


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("a.txt", 'attachment; filename="a.txt"'),
        ('a"b;.txt', "attachment; filename=\"a_b_.txt\"; filename*=UTF-8''a%22b%3B.txt"),
        ("é.txt", "attachment; filename=\"_.txt\"; filename*=UTF-8''%C3%A9.txt"),
        ("a\r\nX-Evil: 1", 'attachment; filename="aX-Evil: 1"'),
    ],
)
def test_a_download_is_named_safely(name: str, header: str) -> None:
    assert disposition(name) == header
    assert disposition(name).isascii()


@pytest.mark.parametrize("value", ["text/html; charset=utf-8", "application/vnd.x+json", "image/png"])
def test_a_content_type_is_kept(value: str) -> None:
    assert media_type(value) == value


@pytest.mark.parametrize("value", [None, "", "nonsense", "text/html\r\nX: 1", "a/" + "b" * 300, "text/ü"])
def test_what_is_no_content_type_is_bytes(value: str | None) -> None:
    assert media_type(value) == "application/octet-stream"


@pytest.mark.parametrize(
    "options",
    [
        {"data": {"relative_path": "a"}},
        {"data": {"file": "text, not a file"}},
        {"json": {"file": "x"}},
        {"content": b"--x\r\n", "headers": {"content-type": "multipart/form-data"}},
        {"content": b"garbage", "headers": {"content-type": "multipart/form-data; boundary=x"}},
        {"files": [("file", ("a", b"a")), ("file", ("b", b"b"))]},
        {"files": {"file": ("a", b"a"), "relative_path": ("p", b"p")}},
    ],
    ids=["no file", "text", "json", "no boundary", "garbage", "two files", "path as file"],
)
async def test_a_form_without_one_file_is_refused(options: dict[str, Any]) -> None:
    async with serving(echo) as (client, _):
        task = await client.task()
        response = await client.call("POST", f"/tasks/{task}/artifacts", **options)
        assert response.status_code == 422
        assert response.json()["message"]


async def test_a_file_over_the_limit_is_refused_announced_or_not() -> None:
    async def pieces() -> Any:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
        for _ in range(20):
            yield b"x" * 65536
        yield b"\r\n--b--\r\n"

    async with serving(echo, max_upload=1000) as (client, _):
        task = await client.task()
        path = f"/tasks/{task}/artifacts"
        chunked = {"content-type": "multipart/form-data; boundary=b"}
        responses = [
            await client.call("POST", path, files={"file": ("x", b"x" * 1001)}),
            await client.call("POST", path, files={"file": ("x", b"x" * 200_000)}),
            await client.call("POST", path, content=pieces(), headers=chunked),
        ]
        assert [response.status_code for response in responses] == [413, 413, 413]
        assert (await client.call("POST", path, files={"file": ("x", b"x" * 1000)})).status_code == 200
        assert len((await client.get(f"/tasks/{task}"))["artifacts"]) == 1


def test_a_large_upload_takes_little_memory() -> None:
    size = 24 * 1024 * 1024

    async def pieces() -> Any:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
        for _ in range(size // 65536):
            yield b"x" * 65536
        yield b"\r\n--b--\r\n"

    async def scene() -> int:
        async with serving(echo) as (client, _):
            task = await client.task()
            headers = {"content-type": "multipart/form-data; boundary=b"}
            tracemalloc.start()
            try:
                response = await client.call("POST", f"/tasks/{task}/artifacts", content=pieces(), headers=headers)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert response.status_code == 200
            return peak

    assert run(scene()) < size / 2


async def test_a_large_upload_where_no_temporary_file_can_be_made_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with serving(echo) as (client, _):
        task = await client.task()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
        files = {"file": ("x", b"x" * (2 * 1024 * 1024))}
        response = await client.call("POST", f"/tasks/{task}/artifacts", files=files)
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert response.json() == {"message": "there is no room for the file now"}
    assert str(tmp_path / "gone") in caplog.text


async def test_a_file_of_another_task_is_not_found() -> None:
    async with serving(echo) as (client, _):
        mine, other = await client.task(), await client.task()
        up = await client.call("POST", f"/tasks/{other}/artifacts", files={"file": ("x", b"secret")})
        response = await client.call("GET", f"/tasks/{mine}/artifacts/{up.json()['artifact_id']}")
        assert response.status_code == 404
        assert "not found" in response.json()["message"]
