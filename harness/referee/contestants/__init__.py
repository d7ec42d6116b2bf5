"""The referee's end of contestant processes: start, requests, failures, findings."""
