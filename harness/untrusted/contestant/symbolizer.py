"""Find the source lines of addresses in compiled code of an ended process.

Untrusted side: started by name in a sandbox like the contestant's, never imported by a trusted module. A submission's
commands made the modules, and a tool reads them here. No code of a submission runs.
"""

from __future__ import annotations

from harness.hostcuda.translate.runtime_library import source_lines
from harness.protocol.channel import Channel, ChannelClosed
from harness.protocol.messages import Located


def main(channel: Channel, _: tuple[int, ...]) -> None:
    """Answer one `Locate`."""
    try:
        message = channel.receive().message
    except ChannelClosed:
        return
    sites = [(str(module), int(offset)) for module, offset in message["sites"]]
    lines = source_lines(sites)
    channel.send(Located(places=tuple(lines.get(site) for site in sites)).to_json())
