"""A Slurm of one node in a folder: its own daemons, key and ports, beside any other Slurm of the machine."""
import contextlib
import os
import pathlib
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
import time

USER = pwd.getpwuid(os.getuid()).pw_name
PROGRAMS = ("munged", "slurmctld", "slurmd", "scancel", "sinfo", "squeue", "srun")


def find(program):
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def missing_programs():
    return [program for program in PROGRAMS if find(program) is None]


def knows_pmix():
    listed = subprocess.run([find("srun"), "--mpi=list"], capture_output=True, text=True)
    return "pmix" in listed.stdout + listed.stderr


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class PrivateSlurm:
    """Runs for as long as the context does. `environment` leads srun to it."""

    CORES = 8  # whatever the machine has
    PATIENCE = 30  # seconds

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ckptkit-slurm-")))
            self.environment = {"SLURM_CONF": str(self.folder / "slurm.conf")}
            self._configure()
            key = self.folder / "munge.key"
            key.write_bytes(secrets.token_bytes(128))
            key.chmod(0o600)
            files = [f"--{name}={self.folder / 'munge'}.{name.removesuffix('-file')}"
                     for name in ("key-file", "socket", "pid-file", "log-file", "seed-file")]
            stack.enter_context(self._daemon("munged", "--foreground", "--force", *files))
            self._wait("munged", (self.folder / "munge.socket").exists)
            stack.enter_context(self._daemon("slurmctld", "-D", "-c"))
            stack.enter_context(self._daemon("slurmd", "-D", "-c"))
            self._wait("slurmd", lambda: "idle" in (self._say("sinfo") or ""))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *what):
        with self._stack:  # Tasks outlive the daemons.
            subprocess.run([find("scancel"), "--signal=KILL", f"--user={USER}"], env=os.environ | self.environment)
            self._wait("scancel", lambda: self._say("squeue") == "")

    def _configure(self):
        controller, node = free_ports(2)
        host = socket.gethostname().partition(".")[0]
        (self.folder / "state").mkdir()
        # Job 1 of another Slurm may have left its folder of this kind in /tmp, where job 1 of this one would not start.
        (self.folder / "mpi.conf").write_text(f"PMIxCliTmpDirBase={self.folder}\n")
        (self.folder / "slurm.conf").write_text(f"""
ClusterName=private
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser={USER}
SlurmdUser={USER}
AuthType=auth/munge
AuthInfo=socket={self.folder}/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd.pid
KillWait=30
NodeName={host} NodeAddr=127.0.0.1 CPUs={self.CORES}
PartitionName=all Nodes=ALL Default=YES
""")

    @contextlib.contextmanager
    def _daemon(self, program, *options):
        with (self.folder / f"{program}.out").open("wb") as out:
            process = subprocess.Popen([find(program), *options], stdout=out, stderr=out, env=os.environ | self.environment)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(timeout=self.PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _say(self, program):
        """What it prints; None if it fails."""
        done = subprocess.run([find(program), "--noheader"], capture_output=True, text=True, env=os.environ | self.environment)
        return done.stdout if done.returncode == 0 else None

    def _wait(self, program, is_ready):
        deadline = time.monotonic() + self.PATIENCE
        while not is_ready():
            if time.monotonic() > deadline:
                said = "".join(file.read_text() for file in sorted(self.folder.glob("*.out")))
                raise TimeoutError(f"{program} is not done:\n{said}")
            time.sleep(0.05)
