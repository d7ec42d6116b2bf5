"""The referee's side of contestant processes: start, requests, failures, findings."""
