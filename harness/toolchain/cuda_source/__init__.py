"""Read CUDA sources: tokens, syntax trees, removal of unparsable attributes."""
