"""The guard before Flower's SuperLink: who reaches what, and when."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("starlette")

from sordino.deployment.superlink import FleetOnly  # noqa: E402


def ask(guard, path, caller, own="10.0.0.1"):
    """The status that a caller gets; 200 if it comes through."""
    said = []

    async def send(event):
        said.append(event)

    async def receive():
        return {"type": "http.request"}

    scope = {"type": "http", "path": path, "client": (caller, 5000), "server": (own, 8443), "method": "POST"}
    asyncio.run(guard(scope, receive, send))
    return said[0]["status"]


@pytest.fixture
def guard():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200})

    return FleetOnly(app)


def test_nodes_wait_until_there_is_a_run(guard):
    assert ask(guard, "/v1/fleet/activate-node", "10.0.0.7") == 503
    assert ask(guard, "/v1/control/start-run", "10.0.0.7") == 404  # which does not open it
    assert ask(guard, "/v1/fleet/activate-node", "10.0.0.7") == 503
    assert ask(guard, "/v1/control/register-node", "127.0.0.1") == 200
    assert ask(guard, "/v1/control/start-run", "127.0.0.1") == 200
    assert ask(guard, "/v1/fleet/activate-node", "10.0.0.7") == 200


@pytest.mark.parametrize("path", ["/v1/control/list-runs", "/v1/runtime/acquire-task", "/docs", "/", "/v1/fleetx"])
def test_other_machines_see_the_nodes_interface_only(guard, path):
    assert ask(guard, path, "10.0.0.7") == 404
    assert ask(guard, path, "127.0.0.1") == 200
    assert ask(guard, path, "10.0.0.1") == 200  # this machine, where the server listens at one address only
    assert ask(guard, "/health", "10.0.0.7") == 200
