"""Flower's two apps, both thin: the client app relays to the resident holder, the server app runs a plan.

Under `sordino join` and `sordino serve` these objects run inside Flower's processes; under `flwr run` Flower loads
them from an app folder (see `bundle`). They are made when they are first asked for: `client_app` and `server_app`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sordino.engines.flower import local, wire
from sordino.errors import SordinoError

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp

    client_app: ClientApp
    server_app: ServerApp


def relay(message: Message, context: Context) -> Message:
    """Hand the message to the holder, and its answer back."""
    from flwr.app import Message

    from sordino.engines.flower.records import from_records, to_records

    asked = wire.to_bytes(from_records(message.content))
    path = context.node_config.get(local.SOCKET)
    if path is not None:
        reply = local.call(str(path), asked)
    elif "partition-id" in context.node_config:
        from sordino.deployment import simulated

        reply = simulated.answer(asked, context)
    else:
        raise SordinoError("this node has no holder: start it with sordino join, or name its socket in --node-config.")
    return Message(to_records(wire.from_bytes(reply)), reply_to=message)


def serve(grid: Grid, context: Context) -> None:
    """Run the plan that the app's configuration names."""
    from sordino.deployment.flwr_run import run

    run(grid, context.run_config)


def __getattr__(name: str) -> Any:
    if name == "client_app":
        from flwr.clientapp import ClientApp

        from sordino.engines.flower.records import ACTION

        made: Any = ClientApp()
        made.train(ACTION)(relay)
    elif name == "server_app":
        from flwr.serverapp import ServerApp

        made = ServerApp()
        made.main()(serve)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = made
    return made
