"""Feedback on a passed solution: speedup, limits, kernels, suggestions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from harness.core.choices import DeviceKind
from harness.core.record import Record
from harness.core.stats import same_within
from harness.report import format as show
from harness.report.feedback import kernels
from harness.results import evidence as read
from harness.results.scoring import ScoredRecord, is_noisy, main_baseline, scored

Section = tuple[str, Sequence[str]]

MAX_KERNELS = 8

SMALL_GAP_S = 20e-6
"""Difference of latency and device time that an ordinary launch from Python explains, in seconds."""

NEAR_LIMIT, FAR_FROM_LIMIT = 0.85, 0.5
"""Above the first share of the speed of light there is little to gain, below the second there is much."""

BEYOND = 1.05
"""Above this share of the speed of light, a solution evidently does less work than was counted."""

SHORT_LAUNCHES = 20
"""The time of an empty kernel is shown if a call takes at most this many times as long."""

LACKS = {"failed": "did not compile or run", "wrong": "gives wrong values"}
"""Why a baseline has no time, by its outcome."""

BOUNDS = {
    "memory": "moving the least possible number of bytes",
    "compute": "the reference's arithmetic at the peak rate of the precision class",
    "launch": "launching one kernel",
}


FAR = {
    "memory": "Far from the memory limit: the time suffices to move all data {times} times. Check coalescing, use wide "
    "loads, and avoid reading data again.",
    "compute": "Far from the compute limit: reuse data in registers and shared memory.",
    "launch": "Launch overhead dominates: fuse the kernels into one launch, or use a CUDA graph.",
}
"""Advice for a solution far from its limit, by the problem's bound."""


def sections(record: Record) -> list[Section]:
    """Return the sections for a record that passed."""
    reached = _reached(record)
    near = reached is not None and reached >= NEAR_LIMIT
    return [
        ("Result", _result(record)),
        ("Limit", _limit(record)),
        ("Where the time goes", kernels.sentences(record, near_limit=near)),
        ("Kernels", _kernels(record)),
        ("What the numbers suggest", _suggestions(record)),
    ]


def _result(record: Record) -> list[str]:
    lines = []
    timing = read.mapping(record.timing)
    # The speedup over the main baseline, or over eager if it has no time.
    entry = scored(record, main_baseline(record))
    entry = scored(record) if entry.speedup is None else entry
    if entry.speedup is None:
        cpu = record.device is DeviceKind.HOST
        lines.append("Correct. Not timed, because the GPU code ran on the CPU." if cpu else "Correct. Not timed.")
    else:
        lines.append(f"Correct, and {_ratio(entry)}.")
        mine, theirs = (read.number(timing, side, "device", "median_s") for side in ("solution", "reference"))
        if mine is not None:
            eager = "" if theirs is None else f", eager {show.duration(theirs)}"
            calls = read.whole(timing, "solution", "device", "samples") or "some"
            clock = show.line(read.text(timing, "clock") or "the device", 40)
            lines.append(f"A call takes {show.duration(mine)}{eager} (median of {calls} calls, by {clock}).")
        lines += _without_launches(timing) + _baselines(record, entry.group.baseline)
    lines += _backward(record)
    variants = read.mapping(record.evidence, "variants")
    calls = sum(read.whole(row, "calls") or 0 for row in variants.values())
    if calls:
        more = read.whole(record.evidence, "timed_calls_verified")
        timed = f" and {more} timed calls" if more else ""
        named = ", ".join(show.line(name.replace("_", " "), 40) for name in sorted(variants))
        lines.append(f"Checked: {calls} calls on {len(variants)} input variants ({named}){timed}.")
    return lines + _audit(record)


def _audit(record: Record) -> list[str]:
    """List which tools of compute-sanitizer checked the kernels, and which did not."""
    audit = read.mapping(record.evidence, "audit")
    ran, lines = [], []
    for name, held in read.mapping(audit, "tools").items():
        tool = show.line(name, 40)
        if why := read.text(held, "not_run"):
            lines.append(f"Not checked by {tool}: {show.line(why, 300)}.")
        elif why := read.text(held, "ended"):
            lines.append(f"Not completely checked by {tool}: {show.line(why, 300)}.")
        else:
            ran.append(tool)
    if why := read.text(audit, "not_run"):
        lines.append(f"Not checked by compute-sanitizer: {show.line(why, 300)}.")
    return ([f"Checked by compute-sanitizer ({', '.join(ran)})."] if ran else []) + lines


def _shown(entry: ScoredRecord) -> str:
    baseline = entry.group.baseline
    return show.speedup_with_interval(entry.speedup, entry.low, entry.high, entry.same_within, baseline=baseline)


def _ratio(entry: ScoredRecord) -> str:
    shown, name = _shown(entry), show.line(entry.group.baseline, 60)
    if entry.same_within is not None:
        return f"the {shown}"
    if is_noisy(entry.low, entry.high):
        return f"{show.TOO_NOISY} how fast compared with {name}: {shown}, with the 95 % confidence interval in brackets"
    if entry.low is not None and entry.high is not None and entry.low <= 1.0 <= entry.high:
        return f"as fast as {name}: {shown}; the 95 % confidence interval includes 1"
    how = "faster" if (entry.speedup or 0.0) > 1.0 else "slower"
    return f"{how} than {name}: {shown}, with the 95 % confidence interval in brackets"


def _baselines(record: Record, told: str) -> list[str]:
    """Return a line for each baseline except `told`: its speedup or why it has none."""
    lines = []
    for name, row in read.mapping(record.timing, "baselines").items():
        entry, shown = scored(record, name), show.line(name, 60)
        if entry.speedup is not None and name != told:
            lines.append(f"Over {shown}: {_shown(entry)}.")
        elif entry.speedup is None and (why := LACKS.get(read.text(row, "outcome"))):
            lines.append(f"Over {shown}: no speedup, because this baseline {why}.")
    return lines


def _backward(record: Record) -> list[str]:
    """Return lines about the two passes and the memory between them, if any."""
    backward, lines = read.mapping(record.evidence, "backward"), []
    passes = {name: read.mapping(backward, f"{name}_s") for name in ("forward", "backward")}
    mine, theirs = (
        [f"{name} {show.duration(time_s)}" for name, held in passes.items() if (time_s := read.number(held, side))]
        for side in ("solution", "reference")
    )
    if mine and theirs:
        lines.append(f"Of that, {', '.join(mine)}; eager: {', '.join(theirs)}.")
    own, eager = (read.whole(backward, "held_bytes", side) for side in ("solution", "reference"))
    if own is not None and eager is not None:
        lines.append(f"Held between forward and backward: {show.size(own)}; eager: {show.size(eager)}.")
    return lines


def _without_launches(timing: Mapping[str, Any]) -> list[str]:
    """Return a line about times without launch overhead, if both sides have them."""
    mine, theirs = (read.number(timing, side, "graph_s") for side in ("solution", "reference"))
    if not mine or not theirs:
        return []
    floor = read.number(timing, "noise_floor", "log_width") or 0.0
    ratio = theirs / mine
    told = "the same" if same_within(ratio, None, None, floor=floor) is not None else show.speedup(ratio)
    return [
        f"Without launch overhead (in a CUDA graph): {show.duration(mine)}, eager {show.duration(theirs)} ({told})."
    ]


def _limit(record: Record) -> list[str]:
    light = read.mapping(record.timing, "speed_of_light")
    least, bound = read.number(light, "sol_time_s"), read.text(light, "bound")
    if least is None or bound not in BOUNDS:
        return []
    fraction, theirs = read.number(light, "fraction"), read.number(light, "reference_fraction")
    at_least = "" if _beyond(record) else "at least "
    lines = [f"Speed of light, bound by {bound}: {BOUNDS[bound]} takes {at_least}{show.duration(least)} on this GPU."]
    if fraction is not None and _beyond(record):
        lines.append(
            f"This solution takes only {show.share(1 / fraction)} of that time. So it does less work than the "
            "reference, or uses faster arithmetic than that of the precision class."
        )
        memory_s, reached = read.number(light, "memory_s"), _reached(record)
        if memory_s is not None and reached is not None:
            moving = f"Moving the least possible number of bytes takes {show.duration(memory_s)}"
            lines.append(f"{moving}; the solution reaches {show.share(reached)} of this limit.")
    elif fraction is not None:
        eager = "" if theirs is None else f"; eager reaches {show.share(theirs)}"
        lines.append(f"This solution reaches {show.share(fraction)} of the speed of light{eager}.")
    launch, took = read.number(light, "launch_s"), read.number(record.timing, "solution", "device", "median_s")
    if launch is not None and (took is None or took <= SHORT_LAUNCHES * launch):
        lines.append(f"An empty kernel takes {show.duration(launch)} on this GPU: no call can be shorter.")
    if source := read.text(light, "peaks_source"):
        known = {"datasheet": "the peak rates of the datasheet", "measured": "peak rates measured on this GPU"}
        lines.append(f"Computed from {known.get(source, 'peak rates from ' + show.line(source, 60))}.")
    return lines


def _beyond(record: Record) -> bool:
    """Return whether the speed of light evidently does not bound the solution."""
    return (read.number(record.timing, "speed_of_light", "fraction") or 0.0) >= BEYOND


def _reached(record: Record) -> float | None:
    """Return the reached share of the limit; if beyond compute's, of the memory limit."""
    light = read.mapping(record.timing, "speed_of_light")
    fraction = read.number(light, "fraction")
    if fraction is None or not _beyond(record):
        return fraction
    memory_s, took_s = read.number(light, "memory_s"), read.number(record.timing, "solution", "device", "median_s")
    return memory_s / took_s if memory_s and took_s and read.text(light, "bound") == "compute" else None


def _kernels(record: Record) -> list[str]:
    """Return a line for each kernel; instances and architectures share a line."""
    held: dict[str, list[Mapping[str, Any]]] = {}
    for row in read.rows(record.build, "kernels"):
        held.setdefault(show.line(row.get("kernel", "a kernel"), 120), []).append(row)
    lines = [_compiled(name, rows) for name, rows in list(held.items())[:MAX_KERNELS]]
    return lines + ([f"and {len(held) - MAX_KERNELS} more"] if len(held) > MAX_KERNELS else [])


def _compiled(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    registers = [count for row in rows if (count := read.whole(row, "registers"))]
    shared = max(read.whole(row, "shared_bytes") or 0 for row in rows)
    spilled = max(map(_spilled, rows))
    stack = max(read.whole(row, "stack_bytes") or 0 for row in rows)
    instances = max(Counter(read.text(row, "arch") for row in rows).values())
    parts = [f"{instances} instances"] if instances > 1 else []
    if registers:
        least, most = min(registers), max(registers)
        parts.append(f"{most} registers per thread" if least == most else f"{least} to {most} registers per thread")
    if shared:
        parts.append(f"{show.size(shared)} of static shared memory per block")
    parts.append(f"spills {show.size(spilled)} per thread to memory" if spilled else "no spills")
    if stack:
        parts.append(f"{show.size(stack)} of stack per thread")
    return f"{name}: {', '.join(parts)}"


def _spilled(row: Mapping[str, Any]) -> int:
    return (read.whole(row, "spill_stores_bytes") or 0) + (read.whole(row, "spill_loads_bytes") or 0)


def _has_own_kernels(record: Record) -> bool:
    """Return False only if there is a census and it has no own kernel."""
    rows = read.rows(record.evidence, "census", "kernels")
    own = [row for row in rows if read.text(row, "owner") != "library" and read.text(row, "kind") != "copy"]
    return bool(own) or not rows


def _suggestions(record: Record) -> list[str]:
    reached, lines = _reached(record), []
    if not _has_own_kernels(record):
        lines.append("No own kernel ran in the inspected call: torch or the CPU does all the work.")
    elif reached is not None and reached >= NEAR_LIMIT:
        lines.append("Close to the limit: only another algorithm or fewer bytes can make it faster.")
    elif reached is not None and reached < FAR_FROM_LIMIT and not _beyond(record):
        far = FAR.get(read.text(record.timing, "speed_of_light", "bound"))
        lines += [far.format(times=show.digits(1 / reached, 2))] if far else []
    if any(_spilled(row) for row in read.rows(record.build, "kernels")):
        lines.append("Registers spill to memory: use smaller tiles per thread, or __launch_bounds__.")
    device, latency = (read.number(record.timing, "solution", kind, "median_s") for kind in ("device", "latency"))
    if device is not None and latency is not None and latency - device > max(SMALL_GAP_S, 0.5 * device):
        gap = show.duration(latency - device)
        lines.append(
            f"A single call takes {gap} longer than its GPU work: reduce Python code, allocations and launches."
        )
    if record.evidence.get("kernelbench_would_pass") is False and read.mapping(record.evidence, "state").get("copied"):
        lines.append("KernelBench would reject these outputs: it copies no state, as was done here.")
    elif record.evidence.get("kernelbench_would_pass") is False:
        lines.append("KernelBench's rule (allclose) would reject these outputs, although they meet this tolerance.")
    return lines
