"""A snapshot of the hub cache, whose entries are links into blobs/, is a repository like any other."""
import hashlib
import shutil

import pytest

import golden
import tools

CASE = next(c for c in golden.models() if c.name == "qwen3moe-norm-bf16")


def make_cache(source, root, revision="0" * 40):
    """models--org--name/{blobs,refs,snapshots}, as huggingface_hub lays it out."""
    snapshot = root / "models--org--name" / "snapshots" / revision
    blobs = root / "models--org--name" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir(exist_ok=True)
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


def test_the_models_folder_is_opened_at_its_main_revision(tmp_path):
    make_cache(CASE / "ckpt", tmp_path, "1" * 40)
    root = tmp_path / "models--org--name"
    (root / "snapshots" / ("2" * 40)).mkdir()
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text("1" * 40)
    assert tools.digests(root) == tools.digests(CASE / "ckpt")
    assert tools.convert("hf-to-fsdp", root, tmp_path / "fsdp")["ok"]


def test_the_only_snapshot_needs_no_reference_and_several_are_named(tmp_path):
    make_cache(CASE / "ckpt", tmp_path, "1" * 40)
    root = tmp_path / "models--org--name"
    assert tools.digests(root) == tools.digests(CASE / "ckpt")
    (root / "snapshots" / ("2" * 40)).mkdir()
    code, document, _ = tools.run("ckpt-inspect", "summary", root, "--json")
    assert code == 2 and "1" * 40 + ", " + "2" * 40 in document["errors"][0]["actual"]


@pytest.mark.parametrize("text", ["", "../../x", "/etc", "3" * 40])
def test_a_reference_to_no_snapshot_is_refused(text, tmp_path):
    make_cache(CASE / "ckpt", tmp_path)
    (tmp_path / "models--org--name" / "refs").mkdir()
    (tmp_path / "models--org--name" / "refs" / "main").write_text(text)
    code, document, _ = tools.run("ckpt-inspect", "summary", tmp_path / "models--org--name", "--json")
    assert code == 3 and document["errors"][0]["kind"] in ("bad_metadata", "not_found")
