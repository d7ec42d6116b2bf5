"""Import and export KernelBench's result files, and compute its metrics.

Trusted side. Times in these files are in milliseconds, and -1 means that a time is absent; both stay inside this
package. The files, as KernelBench 0.2 writes and reads them:

    eval_results.json            "16" -> [{sample_id, compiled, correctness, metadata, runtime, runtime_stats}, …]
                                 (older: one such object per problem instead of a list); one level, one author per file
    baseline_time_torch.json     "level1" -> "16_name.py" -> {mean, std, min, max, num_trials, hardware, device}, or
                                 null if the reference could not be timed
    pass_at_k_results.json       averages ("avg_pass@1"), metadata (counts), problems (counts and "pass@1")
"""

from harness.results.kernelbench.exporting import export_run
from harness.results.kernelbench.importing import import_results
from harness.results.kernelbench.metrics import Metrics

__all__ = ["Metrics", "export_run", "import_results"]
