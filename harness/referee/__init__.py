"""The trusted judge: owns the reference, seeds, inputs, tolerances, the clock and the verdict."""
