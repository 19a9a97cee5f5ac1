"""flower-superlink, guarded: from other machines only the nodes' own interface can be reached.

Flower 1.41 serves the interface of nodes, that of run control and that of running apps on one port, and the last two ask
nobody for a password: a holder of the authority's certificate could list and start runs. Here they answer to this machine
alone. Nodes that come before the server has admitted anyone are asked to wait, instead of being refused and having to start
again. Start it with the arguments of flower-superlink: ``python -m sordino.deployment.superlink ...``
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from sordino.engines.flower.watching import follow_parent, log_to_stderr

FLEET, HEALTH = "/v1/fleet/", "/health"
BEGINS = "/v1/control/start-run"  # comes after all nodes have been admitted
HERE = ("127.0.0.1", "::1")
log = logging.getLogger("sordino.superlink")


class FleetOnly:
    """The outermost layer of the server: callers from elsewhere see nothing but the nodes' interface, once there is a run."""

    def __init__(self, app: Any) -> None:
        self.app, self._open = app, False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] in ("http", "websocket"):
            from starlette.responses import PlainTextResponse

            caller = (scope.get("client") or ("unknown", 0))[0]
            path = scope["path"]
            # Where it listens at one address only, this machine calls from the same address.
            own = (scope.get("server") or (None, 0))[0]
            if caller not in (*HERE, own) and not (path == HEALTH or path.startswith(FLEET)):
                log.warning("refused %s to %s", path, caller)
                await PlainTextResponse("not found", 404)(scope, receive, send)
                return
            self._open = self._open or path == BEGINS
            if path.startswith(FLEET) and not self._open:
                await PlainTextResponse("not yet", 503)(scope, receive, send)
                return
        await self.app(scope, receive, send)


def main() -> None:
    """Start Flower's SuperLink with our layer in front of it."""
    import flwr.superlink.main as superlink
    from flwr.superlink.cli import flower_superlink
    from starlette.middleware import Middleware

    log_to_stderr()
    inner = superlink._get_middleware
    superlink._get_middleware = lambda: [Middleware(FleetOnly), *inner()]
    sys.argv[0] = "flower-superlink"
    follow_parent()
    flower_superlink()


if __name__ == "__main__":
    main()
