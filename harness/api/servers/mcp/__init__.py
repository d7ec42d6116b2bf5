"""Model Context Protocol: the harness as tools of an agent, over stdio or HTTP.

Trusted side; needs the package `mcp`. The parts:

* `tool_set`: what each tool does
* `own_command`: runs the commands `compare`, `lint`, `profile`, ... in processes of their own
* `replies`: short replies with pages, and delimited untrusted text
* `transports`: the server over stdio and over HTTP
"""
