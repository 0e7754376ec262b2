"""Times whole processes: wall clock, processor time, peak resident memory. Peers are run in turn, never in blocks."""
import dataclasses
import os
import platform
import statistics
import subprocess
import tempfile
import time


@dataclasses.dataclass
class Run:
    seconds: float
    cpu_seconds: float
    peak_rss_bytes: int  # mapped file pages included: the kernel's high-water mark of the process


def run(command, stdout=subprocess.DEVNULL):
    """Runs `command`, which must succeed.

    A child of this interpreter would inherit the interpreter's high-water mark, so /usr/bin/time stands between. Its own
    processor time, under a millisecond, counts in `cpu_seconds`.
    """
    with tempfile.NamedTemporaryFile("r") as peak:
        whole = ["/usr/bin/time", "--format=%M", f"--output={peak.name}", *map(str, command)]
        started = time.perf_counter()
        process = subprocess.Popen(whole, stdout=stdout)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise RuntimeError(f"exit {process.returncode}: {' '.join(map(str, command))}")
        return Run(seconds, usage.ru_utime + usage.ru_stime, int(peak.read().split()[-1]) * 1024)


def write(path, size, *flags):
    """A ceiling: `dd` of about `size` bytes of zeros (whole MiB) to `path`, with fsync."""
    return run(["dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={max(1, round(size / 2**20))}", "conv=fsync", "status=none", *flags])


def files_below(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def size_below(folder):
    """Bytes in its files."""
    return sum(path.stat().st_size for path in files_below(folder))


def median(values):
    return statistics.median(values)


def spread(values):
    """`median (min … max)`."""
    return f"{statistics.median(values):.3g} ({min(values):.3g} … {max(values):.3g})"


def machine():
    """The machine in general terms."""
    with open("/proc/meminfo") as file:
        memory = int(file.readline().split()[1]) / 2**20
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.machine())
    return f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB of memory, Linux {platform.release().split('-')[0]}"


def commit(root):
    done = subprocess.run(["git", "-C", str(root), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def mib(size_bytes):
    return size_bytes / 2**20
