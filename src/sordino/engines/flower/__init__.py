"""One plan across many machines, on Flower (flwr, message API).

wire       what travels: a head of plain data and raw arrays, never pickles
pki        certificates and keys; who signed what
part       the federation as one place sees it
policy     what a data holder allows, whatever the server asks
allowance  what a data holder's data may be used for in all, over every run
holder     the resident part of a data holder: data, policy, ledger, secrets
engine     the engine: the same round as in one process, with clients elsewhere
transport  how the engine reaches holders: Flower's grid, or a direct call in tests
local      the socket between a holder and Flower's client app
acceptance what the server accepts of a client in the clear
secure     the server's side of a secure sum; `membership` is a holder's side
seals      signatures and sequence numbers on every message
node_status    what a node's log means, in a sentence for its operator

`sordino.deployment` starts Flower's own processes and holds its two apps.
"""
