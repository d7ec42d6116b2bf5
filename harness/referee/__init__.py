"""The trusted referee: reference, seeds, inputs, tolerances, clock and verdict."""
