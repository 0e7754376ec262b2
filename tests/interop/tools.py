"""Calls of the tools under test, and of helper scripts under another torch."""
import functools
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile

import packages

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BIN = pathlib.Path(os.environ.get("CKPT_BIN_DIR", ROOT / "build" / "release" / "bin"))

# torch version -> its Python
PYTHONS = {
    "2.15.0": os.environ.get("CKPT_PYTHON_2_15", sys.executable),
    "2.4.1": os.environ.get("CKPT_PYTHON_2_4", ""),
    "hdf5": os.environ.get("CKPT_PYTHON_HDF5", sys.executable),  # no torch: h5py
}
TORCH = ["2.15.0", "2.4.1"]  # the environments that have it

# The formats that store runs, and what of `ckpt-convert convert` makes a directory of each.
RUN_FORMATS = {"fsdp_dtensor": ("--to", "fsdp_dtensor"), "torch_dist": ("--to", "torch_dist"), "fsdp2": ("--to", "dcp", "--naming", "fsdp2")}
# Forms of a run's optimizer in these, with the naming of the format.
RUN_FORMS = {
    **{naming: (naming, ()) for naming in RUN_FORMATS},
    "model_space": ("torch_dist", ("--optimizer-form", "fully_sharded_model_space")),
    "buffers": ("torch_dist", ("--optimizer-form", "dp_reshardable", "--transformer-impl", "local")),
    "flattened": ("fsdp2", ("--optimizer-state-dict", "flattened")),
}


def are_sanitized():
    """Whether the tools were built with a sanitizer, which holds a lot of memory of its own."""
    program = (BIN / "ckpt-convert").read_bytes()
    return b"__asan_init" in program or b"__tsan_init" in program


def run(tool, *arguments, timeout=300):
    """(exit code, the JSON document on standard output or None, standard error)."""
    command = [str(BIN / tool), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    document = json.loads(done.stdout) if done.stdout.strip().startswith("{") else None
    return done.returncode, document, done.stderr


def run_ok(tool, *arguments):
    """The JSON document of a call that must succeed."""
    code, document, stderr = run(tool, *arguments, "--json")
    assert code == 0, f"{tool} {' '.join(map(str, arguments))}: exit {code}\n{stderr}\n{json.dumps(document)[:2000]}"
    return document


def inspect(verb, path, *options):
    return run_ok("ckpt-inspect", verb, path, *options)


def convert(verb, source, target, *options):
    return run_ok("ckpt-convert", verb, source, target, *options)


def digests(path, *options):
    """Key -> SHA-256 of the logical tensor."""
    return inspect("digest", path, "--algorithm", "sha256", *options)["tensors"]


def described(path, *options):
    """Key -> (shape, dtype, SHA-256): everything that makes a tensor, as the account of a golden has it."""
    hashes = digests(path, *options)
    tensors = {t["key"]: t for t in inspect("tensors", path, *options)["tensors"]}
    assert set(hashes) == set(tensors)
    return {k: (t["shape"], t["dtype"], hashes[k]) for k, t in tensors.items()}


# What peers import that takes seconds, by the environment.
WARM_MODULES = {
    "2.15.0": ("torch.distributed.checkpoint.state_dict", "torch.distributed.fsdp", "torch._dynamo", "transformers.modeling_utils"),
    "2.4.1": ("torch.distributed.checkpoint.state_dict", "torch.distributed.fsdp"),
    "hdf5": (),
}


class WarmPython:
    """A Python of an environment that runs scripts in forks of itself, one at a time: none of them imports torch again, or the
    Megatron-Core in the folder `core`."""

    def __init__(self, environment, core=None):
        command = [PYTHONS[environment], "-W", "ignore", HERE / "warm_python.py", *WARM_MODULES[environment]]
        folders = {}
        if core is not None:
            command.append("live_megatron")
            folders["PYTHONPATH"] = f"{HERE / 'peers'}:{core}"
        # Unbuffered: a script may end before its first line is read, and select() knows nothing of a second one in a buffer.
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
                                        env=os.environ | folders | {"OMP_NUM_THREADS": "1"})

    def run(self, script, arguments, folder, timeout):
        """(exit code, standard output, standard error)"""
        with tempfile.NamedTemporaryFile("r") as output, tempfile.NamedTemporaryFile("r") as errors:
            call = json.dumps([str(script), arguments, str(folder), output.name, errors.name])
            self.process.stdin.write(f"{call}\n".encode())
            leader = int(self.process.stdout.readline())
            if not select.select([self.process.stdout], [], [], timeout)[0]:
                os.killpg(leader, signal.SIGKILL)
                self.process.stdout.readline()
                raise subprocess.TimeoutExpired(str(script), timeout, output.read(), errors.read())
            code = int(self.process.stdout.readline())
            return code, output.read(), errors.read()


# One that is no longer kept ends, since its input does.
warm_python = functools.lru_cache(maxsize=4)(WarmPython)


def _last_document(python, script, arguments, timeout, cwd=None):
    code, output, errors = python.run(HERE / "peers" / script, list(map(str, arguments)), pathlib.Path(cwd or ".").resolve(), timeout)
    assert code == 0, f"{script}: exit {code}\n{errors[-4000:]}"
    return json.loads(output.splitlines()[-1])


def peer(environment, script, *arguments, timeout=600, cwd=None):
    """The JSON that peers/<script> prints last, run in the given environment (a version of torch, or "hdf5")."""
    return _last_document(warm_python(environment), script, arguments, timeout, cwd)


def megatron(version, script, *arguments, timeout=300):
    """The same of a script that runs real Megatron-Core of this version, whose folder is the script's first argument."""
    core = packages.megatron_core(version)
    return _last_document(warm_python("2.15.0", core), script, (core, *arguments), timeout)
