"""How much memory this process may still take."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ._errors import DataError

_GROUP = Path("/sys/fs/cgroup")


def refuse_too_large(needed: float, where: Path | str) -> None:
    """An error if this many bytes would not fit into the memory. Small files can claim to be large ones."""
    free = free_memory()
    if needed > free:
        raise DataError(
            f"{where} would take {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free: use a smaller file"
        )


def free_memory() -> float:
    """Bytes that can be taken without swapping; infinite where nobody says."""
    return min(_of_machine(), _of_container(), _of_process())


def _of_machine() -> float:
    try:
        found = re.search(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text())
        if found:
            return 1024.0 * int(found[1])
    except OSError:
        pass
    try:  # macOS says only how much there is in all
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, AttributeError):  # AttributeError: Windows has no sysconf
        return float("inf")


def _of_process() -> float:
    """What a limit on this process (ulimit -v) leaves."""
    try:
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        if most == resource.RLIM_INFINITY:
            return float("inf")
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (ImportError, OSError, ValueError, AttributeError):  # Windows has no limits; macOS no /proc
        return float("inf")
    return float(max(0, most - taken))


def _of_container() -> float:
    """What a container may still take, if it is limited. Cached files count as used there, but can be given back."""
    try:
        most = float((_GROUP / "memory.max").read_text())  # "max" is no number: there is no limit
        used = float((_GROUP / "memory.current").read_text())
        cached = re.search(r"^file (\d+)", (_GROUP / "memory.stat").read_text(), flags=re.MULTILINE)
    except (OSError, ValueError):
        return float("inf")
    return most - used + (float(cached[1]) if cached else 0.0)
