"""Many solutions: plan, scheduling, executors, service, profile."""
