"""An independent check of a finished run, for people who did not train it.

chain         a reader of the ledger of its own
manifest      hashes of what training left
plan_check    the plan, and what the ledger is bound to
recompute     epsilon from events, by dp-accounting alone
client_sums   the same where each client has a budget of its own
epsilon       whether the printed epsilon bounds it
consistency   the statement against everything else
attestations  signatures of data holders
verdict       what is found

    verdict = verify.check(folder)      # never fails because of what the folder holds
"""

from __future__ import annotations

from sordino.verify.checking import after_training, check
from sordino.verify.verdict import Check, Verdict

__all__ = ["Check", "Verdict", "after_training", "check"]
