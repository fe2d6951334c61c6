"""The SDKs' own example clients and agents with each other, as they are: known good before a gateway is between."""

import pytest

from tests.support.agent_client import (
    SDKS,
    Sdk,
    agent_client_client,
    example_agent_command,
    example_client,
    example_remote_client,
    example_server,
    results,
    text,
)

SAID = {"py": "| Agent: Client sent:\n| Agent: hello\n", "ts-0": " Now I understand", "ts-2": " Now I understand"}


@pytest.mark.parametrize("sdk", SDKS)
def test_the_example_client_drives_the_example_agent_on_stdio(sdk: Sdk) -> None:
    typed = "hello\n" if sdk == "py" else "1\n"
    shown = example_client(sdk, example_agent_command(sdk), typed)
    assert SAID[sdk] in shown
    if sdk != "py":
        assert "Permission requested: Modifying critical configuration file" in shown
        assert "Perfect! I've successfully updated the configuration" in shown
        assert "Agent completed with: end_turn" in shown


@pytest.mark.parametrize("scheme", ["http", "ws"])
@pytest.mark.parametrize("sdk", SDKS)
def test_the_example_clients_reach_the_example_server(sdk: Sdk, scheme: str) -> None:
    with example_server(sdk) as server:
        shown = example_remote_client(sdk, f"{scheme}://127.0.0.1:{server.port}/acp")
    expected = {
        "py": f"<< echo: hello over {'http' if scheme == 'http' else 'websocket'}\nstop reason: end_turn",
        "ts-0": "Hello from the ACP HTTP/WebSocket example server",
    }
    assert expected["py" if sdk == "py" else "ts-0"] in shown
    assert sdk == "py" or "Done: end_turn" in shown


@pytest.mark.parametrize("sdk", SDKS)
def test_our_client_drives_the_example_agent(sdk: Sdk) -> None:
    lines = agent_client_client(sdk, "--say", "hello", command=example_agent_command(sdk))
    assert results(lines, "session/prompt") == [{"stopReason": "end_turn"}]
    assert text(lines) == "Client sent:hello" or text(lines).endswith("The changes have been applied.")
