"""Reading CUDA sources: tokens, syntax tree, comments and strings blanked."""
