"""Translate small CUDA sources for the host device as a build does, without headers and without compiling."""

from __future__ import annotations

import subprocess

from harness.hostcuda.translate.preprocess import author_text, marked
from harness.hostcuda.translate.rewrite import RewrittenSource, rewrite

FIRST_LINE = '# 1 "cuda.cu"\n'


def author(source: str, *switches: str) -> str:
    """The author's text behind the preprocessor, from its first line on."""
    text = '#line 1 "cuda.cu"\n' + marked(source)
    done = subprocess.run(
        ["g++", "-E", "-x", "c++", "-std=c++20", *switches, "-"],
        input=text.encode(),
        capture_output=True,
        check=True,
    )
    unit = author_text(done.stdout.decode(), lambda file: file == "cuda.cu")
    return "".join(line for line in unit.text.splitlines(keepends=True) if not line.startswith("#hostcuda"))


def translated(source: str) -> RewrittenSource:
    """The translation of a source for both sides."""
    device = author(source, "-D__CUDA_ARCH__=900")
    host = author(source)
    return rewrite(device, host if host != device else None)


def translated_lines(source: str) -> dict[int, str]:
    """The translated text by the source's line numbers; several texts of one line are joined."""
    number, lines = 0, dict[int, str]()
    for line in translated(source).text.splitlines():
        if line.startswith("# "):
            number = int(line.split()[1])
        else:
            lines[number] = lines.get(number, "") + line
            number += 1
    return lines
