"""`harness profile`: find where the time of one call goes.

Trusted side. Profiles a solution and its reference. Both run as contestants in the sandbox: a profiler lives in the
process that it profiles, and must not be loaded into the referee. Gives no verdict.
"""
