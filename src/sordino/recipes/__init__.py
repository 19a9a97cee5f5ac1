"""Settings that nobody gave, from public facts."""
