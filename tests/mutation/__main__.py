"""Mutants of kernels: which small mistakes in CUDA does the harness not notice?

    python -m tests.mutation --count 10000 --workers 60 --limit-s 500 --out mutants.jsonl
    python -m tests.mutation --out mutants.jsonl --page results/mutants-of-kernels.md

The first command judges mutants of the tuned and example solutions, of the honest entries of `tests/exploits` and of
`tests/hostcuda/corpus`. It appends a JSON line for each to the file. Run again, it goes on with those that are not in
the file. The second command writes the table of operators and stages, and the mutants that survive.

    python -m tests.mutation --device cuda --workers 4 --survivors-of mutants.jsonl --out cuda.jsonl
    python -m tests.mutation --survivors-of mutants.jsonl --out cuda.jsonl --page results/mutants-of-kernels.md

These judge the survivors of the host device on GPUs at full sizes, and write both results on one page.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from tests.mutation import page
from tests.mutation.judging import SOUND, Plan, judge, rows_of
from tests.mutation.kernels import chunks, kernel_files, sample

CHUNK = 16
"""Mutants of one file that a worker takes at once: it prepares their problem once."""


def _shard(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    if not (index.isdigit() and count.isdigit() and int(index) < int(count)):
        raise argparse.ArgumentTypeError(f"{text!r} is not I/N with I from 0 to N - 1")
    return int(index), int(count)


def main() -> None:
    """Judge mutants, or write the page of those that were judged."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.jsonl", help="file of results, which grows")
    parser.add_argument("--count", "--sample", type=int, help="number of mutants, even over operators and files  [all]")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample  [0]")
    parser.add_argument("--only", default="", metavar="TEXT", help="only files whose path has this text")
    parser.add_argument("--device", choices=("host", "cuda"), default="host")
    parser.add_argument("--workers", type=int, default=1, help="processes; on cuda one for each GPU is enough  [1]")
    parser.add_argument("--limit-s", type=float, default=604800.0, help="stop after so many seconds  [a week]")
    parser.add_argument("--shard", type=_shard, default=(0, 1), metavar="I/N", help="one of N parts, from 0  [0/1]")
    parser.add_argument(
        "--survivors-of",
        type=Path,
        metavar="FILE.jsonl",
        help="judge only mutants that survive there, on another device",
    )
    parser.add_argument("--page", type=Path, metavar="FILE.md", help="judge nothing; write the page of the results")
    asked = parser.parse_args()
    rows = rows_of(asked.out)
    if asked.page is not None:
        elsewhere = rows_of(asked.survivors_of) if asked.survivors_of is not None else []
        asked.page.write_text(page.page(elsewhere or rows, rows if elsewhere else []), encoding="utf-8")
        return
    begin = time.time()
    index, count = asked.shard
    files = [file for file in kernel_files() if asked.only in file]
    known = {row["id"] for row in rows}
    judged = {row["file"]: row["status"] for row in rows if row["operator"] == SOUND}
    if asked.survivors_of is None:
        chosen = sample(files, asked.count, asked.seed)
    else:
        wanted = {row["id"] for row in rows_of(asked.survivors_of) if row["stage"] == "survived"}
        chosen = [mutant for mutant in sample(files, None, asked.seed) if mutant.id in wanted][: asked.count]
    left = [[mutant for mutant in group if mutant.id not in known] for group in chunks(chosen, CHUNK)[index::count]]
    groups = [group for group in left if group]
    print(f"{sum(map(len, groups))} mutants to judge, {len(known)} judged before", flush=True)
    judge(
        Plan(
            chunks=groups,
            out=asked.out.absolute(),
            device=asked.device,
            workers=asked.workers,
            until=begin + asked.limit_s,
            sound=judged,
        )
    )
    print(f"{len(rows_of(asked.out)) - len(rows)} judged in {time.time() - begin:.0f} s: {asked.out}")


if __name__ == "__main__":
    main()
