"""Before a run: what a budget means for learning, without any data."""
