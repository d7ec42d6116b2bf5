"""A prepared problem: reference, inputs, truth, workspace, cost of one call."""
