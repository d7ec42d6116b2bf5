"""The untrusted side: which lines of sources compiled code is of, asked when the process that ran it is gone.

Never imported by a trusted module; started by its name, behind the walls of the contestant that it is asked for, since
the modules were made by commands of a submission and reading them is left to a tool. No code of a submission runs here.
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
