"""`harness profile`.

Where the time of one call goes, for a solution and its reference.

Trusted side. Both run as contestants in the sandbox: a profiler lives in the process that it profiles, and must not be
loaded into the referee. Gives no verdict.
"""
