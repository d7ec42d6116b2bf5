"""HTTP service: tenants submit solutions and get records; jobs in a database.

Trusted side; needs the extra `service`. Evaluation is that of `harness eval`: a `Runner` over an executor. A job
moves queued -> running -> done, or ends as cancelled. Each step is one transaction of the database, so a job survives
the end of any server and gets exactly one record. Submissions are untrusted; a problem sent as text is code that runs
in the referee, so only tenants with the right `problem_texts` may send one.
"""

NO_SERVICE = "--http needs the packages of the extra service: pip install 'kernel-harness[service]'"
