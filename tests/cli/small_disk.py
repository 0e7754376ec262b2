"""A disk that fills up soon."""
import os
import pathlib
import shutil
import subprocess
import tempfile


class SmallDisk:
    """A file system of `size` bytes; the test is skipped where none may be mounted."""

    def __init__(self, test, size):
        self.test, self.size = test, size

    def __enter__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="ckptkit-disk-"))
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.size}", "tmpfs", self.path], capture_output=True, text=True)
        if done.returncode != 0:
            shutil.rmtree(self.path)
            self.test.skipTest(f"no file system can be mounted here: {done.stderr.strip()}")
        return self.path

    def __exit__(self, *_):
        subprocess.run(["umount", self.path], check=True)
        os.rmdir(self.path)


def grow(disk, size):
    subprocess.run(["mount", "-o", f"remount,size={size}", disk], check=True)
