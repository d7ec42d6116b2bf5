"""Keep entries on disk, one small JSON file each, below the cache folder.

Entries are valid on one machine only, and none is shipped: the key names processor, driver and torch.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch

from harness.core.atomic_file import replace_whole
from harness.core.choices import Baseline
from harness.core.environment import cpu_name, query_gpus
from harness.core.problem import Problem, Workload
from harness.devices.device import Device
from harness.referee.baselines.entry import FORMAT, BaselineEntry, BaselineKey


class BaselineStore:
    """The entries of one cache folder.

    Processes may share it, because each file is replaced as a whole.
    """

    def __init__(self, cache_dir: Path) -> None:
        self.folder = cache_dir / "baselines"

    def get(self, key: BaselineKey) -> BaselineEntry | None:
        """The entry kept under `key`, or None.

        A file that is broken or of another version counts as none.
        """
        try:
            held = json.loads(self._path(key).read_text(encoding="utf-8"))
            if held["format"] != FORMAT:
                return None
            return BaselineEntry.from_json(held["entry"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, key: BaselineKey, entry: BaselineEntry) -> None:
        """Keep `entry` and replace an earlier one. Raises `OSError`."""
        value = {"format": FORMAT, "key": key.to_json(), "entry": entry.to_json()}
        replace_whole(self._path(key), (json.dumps(value, allow_nan=False) + "\n").encode())

    def drop(self, key: BaselineKey) -> None:
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: BaselineKey) -> Path:
        return self.folder / f"{key.digest()}.json"


def key_for(baseline: Baseline, problem: Problem, workload: Workload, device: Device) -> BaselineKey:
    """What an entry measured on `device` now is valid for."""
    place = device.torch_device
    if place.type == "cuda":
        properties = torch.cuda.get_device_properties(place)
        processor, units, driver = str(device.name), int(properties.multi_processor_count), query_gpus()[1]
    else:
        processor, units, driver = cpu_name() or os.uname().machine, torch.get_num_threads(), None
    return BaselineKey(
        baseline=baseline,
        problem_digest=problem.digest,
        sizes=dict(workload.sizes),
        precision=problem.precision.value,
        device=device.kind.value,
        processor=processor,
        units=units,
        driver=driver,
        torch=str(torch.__version__),
    )
