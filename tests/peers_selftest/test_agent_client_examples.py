"""The SDKs' own example clients and agents with each other, as they are: known good before a gateway is between."""

import pytest

from tests.support.agent_client import (
    SDKS,
    Sdk,
    example_agent_command,
    example_client,
    example_remote_client,
    example_server,
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


@pytest.mark.parametrize("sdk", SDKS)
def test_the_example_clients_reach_the_example_server(sdk: Sdk) -> None:
    with example_server(sdk) as server:
        for scheme, name in (("http", "http"), ("ws", "websocket")):
            shown = example_remote_client(sdk, f"{scheme}://127.0.0.1:{server.port}/acp")
            if sdk == "py":
                assert f"<< echo: hello over {name}\nstop reason: end_turn" in shown
            else:
                assert "Hello from the ACP HTTP/WebSocket example server" in shown and "Done: end_turn" in shown
