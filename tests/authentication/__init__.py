"""Who asks, at every door on the network: what is refused, whose is what, and whose answer counts."""
