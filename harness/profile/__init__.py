"""`harness profile`: where the time of one call goes, for a solution and its reference side by side.

Outside layer, trusted side. Both run as contestants in the sandbox, since a profiler lives in the process that it looks
at: nothing of the kind is loaded into the referee. Nothing here judges.
"""

from harness.profile.ncu import Counters, find_ncu
from harness.profile.page import lines_of
from harness.profile.running import Profile, ProfileError, Side, profile

__all__ = ["Counters", "Profile", "ProfileError", "Side", "find_ncu", "lines_of", "profile"]
