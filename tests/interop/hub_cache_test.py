"""A snapshot of the hub cache, whose entries are links into blobs/, is a repository like any other."""
import hashlib
import shutil

import golden
import tools

CASE = next(c for c in golden.models() if c.name == "qwen3moe-norm-bf16")


def make_cache(source, root):
    """models--org--name/{blobs,refs,snapshots}, as huggingface_hub lays it out."""
    snapshot = root / "models--org--name" / "snapshots" / ("0" * 40)
    blobs = root / "models--org--name" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for path in source.iterdir():
        blob = blobs / hashlib.sha256(path.read_bytes()).hexdigest()
        shutil.copyfile(path, blob)
        (snapshot / path.name).symlink_to(f"../../blobs/{blob.name}")
    return snapshot


def test_snapshot_is_read_and_converted(tmp_path):
    snapshot = make_cache(CASE / "ckpt", tmp_path / "cache")
    assert tools.digests(snapshot) == tools.digests(CASE / "ckpt")
    assert tools.inspect("verify", snapshot)["ok"]
    tools.convert("hf-to-fsdp", snapshot, tmp_path / "fsdp")
    tools.convert("fsdp-to-hf", tmp_path / "fsdp", tmp_path / "hf")
    for path in (CASE / "ckpt").iterdir():
        written = tmp_path / "hf" / path.name
        assert not written.is_symlink() and written.read_bytes() == path.read_bytes(), path.name
