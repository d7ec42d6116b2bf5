"""The host device inside a contestant: torch.cuda and Triton without a GPU."""
