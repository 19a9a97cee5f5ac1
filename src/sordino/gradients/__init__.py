"""Per-example clipping: gradients of single records, their norms, and clipped sums. `per_example.PerExample` is the door."""

WINDOW = 144  # records that run at a time: fewer leave the fixed cost of a pass visible, more leave the cache
