"""A run across machines, from the first greeting to the statement: the loop of `training` over the engine of `engines.flower`."""
