"""`harness profile`: where the time of one call goes, for a solution and its reference side by side.

Outside layer, trusted side. Both run as contestants in the sandbox, since a profiler lives in the process that it looks
at: nothing of the kind is loaded into the referee. Nothing here judges.
"""
