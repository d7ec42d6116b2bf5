"""The problem before a solution comes: reference, inputs, truth, buffers, work of one call."""
