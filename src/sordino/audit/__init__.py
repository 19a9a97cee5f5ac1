"""Epsilon measured from below: canaries, what they show at a level of confidence, and the library's audit of itself."""
