"""Packages that some tests need beside the virtual environment, made once for all processes, in ~/.cache/ckptkit."""
import fcntl
import os
import pathlib
import subprocess
import sys
import zipfile


def _kept(name, make):
    """The folder of this name, which make(folder) fills if nobody has."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "ckptkit"
    folder = cache / name
    cache.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            make(folder)
            (folder / "complete").touch()
    return folder


def _pip(*arguments):
    subprocess.run([sys.executable, "-m", "pip", *map(str, arguments)], check=True)


def installed(*requirements):
    """A folder with these packages, and nothing that they depend on. The first one names it."""
    def make(folder):
        _pip("install", "--quiet", "--no-deps", "--only-binary", ":all:", "--upgrade", "--target", folder, *requirements)

    return _kept(requirements[0].replace("==", "-"), make)


def megatron_core(version):
    """A folder with real Megatron-Core.

    0.17 and later ask pip for a newer Python than they need, so that their wheel is unpacked; what is compiled in it does not load.
    """
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    python = own if tuple(map(int, version.split(".")))[:2] < (0, 17) else "3.12"

    def make(folder):
        wheels = folder.with_name(f"{folder.name}-wheel")
        _pip("download", "--quiet", "--no-deps", "--only-binary", ":all:", "--python-version", python, "--dest", wheels,
             f"megatron-core=={version}")
        with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
            wheel.extractall(folder)

    return _kept(f"megatron-core-{version}-python-{python}", make)


def megatron_bridge(version):
    """A folder with real Megatron-Bridge, and what reads its configurations."""
    def make(folder):
        _pip("install", "--quiet", "--no-deps", "--upgrade", "--target", folder, f"megatron-bridge=={version}", "omegaconf==2.3.0",
             "antlr4-python3-runtime==4.9.3", "pyyaml==6.0.2")

    return _kept(f"megatron-bridge-{version}", make)
