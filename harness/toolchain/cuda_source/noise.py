"""Blank the attributes that the CUDA grammar can't parse.

The host device's translator and the split build use this before parsing.
"""

from __future__ import annotations

import re

from harness.toolchain.cuda_source.tokens import balanced, blank, words

__all__ = ["without_noise"]

_BLANKED_CALLS = {b"__align__", b"alignas", b"__launch_bounds__", b"__cluster_dims__", b"__maxnreg__", b"__attribute__"}
_BLANKED_WORDS = {b"__noinline__", b"__grid_constant__", b"__forceinline__", b"__restrict__", b"__extension__"}
_EMPTIED = re.compile(rb"^([ \t]*#[ \t]*define[ \t]+[A-Za-z_]\w*(?:\([^()\n]*\))?[ \t]+)[ \t](\r?)$", re.M)
_LAMBDA_WORDS = {b"__device__", b"__host__"}


def without_noise(data: bytes) -> bytes:
    """Return the source with unparsable attributes blanked, byte for byte as long."""
    out = bytearray(data)
    for word, start, end in words(data):
        after_capture = bytes(out[max(0, start - 64) : start]).rstrip().endswith(b"]")
        if word in _BLANKED_WORDS or (word in _LAMBDA_WORDS and after_capture):
            blank(out, start, end)
        elif word in _BLANKED_CALLS:
            close = balanced(data, end)
            if close is not None:
                blank(out, start, close)
    # If only blanks are left of a macro's body, the grammar takes the next line for it.
    return _EMPTIED.sub(lambda match: match[1] + b"0" + match[2], bytes(out))
