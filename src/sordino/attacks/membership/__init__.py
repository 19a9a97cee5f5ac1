"""Was this record used? One file per attack, one interface: `guess(game) -> Guess`, one score per judged record."""
