"""Kills, full disks, hostile files: no target ever looks complete that is not, and nothing is executed."""
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

import golden
import tools

KILLS = 24
MARKER = "ckptkit-was-executed"
CONVERT = str(tools.BIN / "ckpt-convert")
CASE = next(c for c in golden.models() if c.name == "qwen3moe-norm-bf16")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A repository large enough that a conversion can be caught in the middle."""
    folder = tmp_path_factory.mktemp("big") / "hf"
    maker = tools.ROOT / "tests" / "bench" / "make_model.py"
    subprocess.run([tools.PYTHONS["2.15.0"], maker, folder, "--gb", "0.25", "--shard-gb", "0.1"], check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("verb", ["hf-to-fsdp", "fsdp-to-hf"])
def test_killed_at_any_moment(verb, model, tmp_path):
    """A killed conversion leaves no target, or a whole one; --resume finishes it."""
    seed = int(os.environ.get("CKPT_TEST_SEED", "20"))
    print(f"replay: CKPT_TEST_SEED={seed}")
    rng = random.Random(seed)
    source = model
    if verb == "fsdp-to-hf":
        source = tmp_path / "source"
        tools.convert("hf-to-fsdp", model, source)
    whole = tmp_path / "whole"
    started = time.monotonic()
    tools.convert(verb, source, whole)
    duration = time.monotonic() - started
    want = tools.digests(whole)

    interrupted = 0
    for i in range(8 * KILLS):
        if interrupted == KILLS // 2:
            break
        target = tmp_path / "target"
        # A process group of its own, so that the kill reaches every thread and child at once.
        process = subprocess.Popen([CONVERT, verb, str(source), str(target)], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True)
        time.sleep(duration * rng.random())
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            interrupted += 1
        else:
            duration *= 0.9  # too late: the machine is faster now than at first
        process.wait()
        if not target.exists():
            tools.convert(verb, source, target, "--resume")
        # Published in one step: whatever stands under the final name is whole.
        assert tools.inspect("verify", target)["ok"], f"kill {i}: a damaged target"
        assert tools.digests(target) == want, f"kill {i}: another content"
        shutil.rmtree(target)
    assert interrupted == KILLS // 2, f"only {interrupted} kills hit a running conversion"
    # What the killed ones left was taken up and published; nothing else lies around.
    assert sorted(p.name for p in tmp_path.iterdir() if p.name not in ("source", "whole")) == []


def test_an_existing_target_is_refused_untouched(tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    (target / "precious").write_text("mine")
    code, document, stderr = tools.run("ckpt-convert", "hf-to-fsdp", CASE / "ckpt", target, "--json")
    assert code in (2, 3), stderr
    assert document["ok"] is False and document["errors"][0]["kind"] == "already_exists"
    assert sorted(p.name for p in target.iterdir()) == ["precious"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["target"]


def test_converting_onto_the_source_is_refused(tmp_path):
    source = tmp_path / "hf"
    subprocess.run(["cp", "-r", CASE / "ckpt", source], check=True)
    before = tools.digests(source)
    code, _, stderr = tools.run("ckpt-convert", "hf-to-fsdp", source, source, "--overwrite", "--json")
    assert code in (2, 3), stderr
    assert tools.digests(source) == before


def test_a_full_disk_leaves_nothing_under_the_final_name(model, tmp_path):
    mount = tmp_path / "small"
    mount.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", mount], capture_output=True).returncode == 0
    try:
        if mounted:
            code, document, stderr = tools.run("ckpt-convert", "hf-to-fsdp", model, mount / "target", "--json")
            assert code == 3 and document["errors"][0]["kind"] == "no_space", stderr
        else:  # no right to mount: the system refuses to let any file grow past the limit instead
            limit = lambda: (signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
                             resource.setrlimit(resource.RLIMIT_FSIZE, (32 << 20, 32 << 20)))
            done = subprocess.run([CONVERT, "hf-to-fsdp", model, mount / "target", "--files", "1", "--json"],
                                  capture_output=True, text=True, preexec_fn=limit)
            assert done.returncode == 3, done.stderr
            assert json.loads(done.stdout)["ok"] is False
        assert not (mount / "target").exists()
    finally:
        if mounted:
            subprocess.run(["umount", mount], check=True)


HOSTILE = [c for c in sorted((golden.root() / "dcp" / "broken").iterdir())
           if golden.account(c).get("kind") in ("unsafe_pickle", "unsafe_path")]


@pytest.mark.parametrize("case", HOSTILE, ids=golden.name)
def test_hostile_files_execute_nothing(case, tmp_path):
    """Every verb that reads it, in a folder of its own; the pickles would leave a marker in the current one."""
    path = case / golden.account(case)["path"]
    for verb in ("summary", "tensors", "meta", "verify", "digest"):
        done = subprocess.run([tools.BIN / "ckpt-inspect", verb, path, "--json"], cwd=tmp_path, capture_output=True, timeout=60)
        assert done.returncode in (0, 1, 3), (verb, done.stderr)
    assert list(tmp_path.iterdir()) == []
    markers = [pathlib.Path(tempfile.gettempdir()) / MARKER, pathlib.Path.home() / MARKER, case / MARKER, path / MARKER]
    assert not any(m.exists() for m in markers)


def flip_one_bit(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["release/__0_0.distcp", "release/.metadata", "release/ckptkit.json",
                                  "release/hf_assets/config.json", "latest_checkpointed_iteration.txt"])
def test_one_flipped_bit_is_found_in_any_file(name, tmp_path):
    target = tmp_path / "fsdp"
    tools.convert("hf-to-fsdp", CASE / "ckpt", target)
    assert (target / name).exists(), sorted(p.relative_to(target).as_posix() for p in target.rglob("*"))
    flip_one_bit(target / name, (target / name).stat().st_size // 2)
    code, document, stderr = tools.run("ckpt-inspect", "verify", target, "--json")
    assert code in (1, 3), stderr
    said = json.dumps(document)
    assert document["ok"] is False and pathlib.PurePath(name).name.split("_checkpointed")[0] in said, said


@pytest.mark.parametrize("named", ["model.safetensors", "./model.safetensors"])
def test_a_single_file_is_proved_by_the_manifest_beside_it(named, tmp_path, monkeypatch):
    """Also where the file is in the working directory, and nothing in its name says where the manifest is."""
    source = next(c for c in golden.models() if c.name == "llama-tied-fp32")
    tools.convert("hf-to-fsdp", source / "ckpt", tmp_path / "fsdp")
    tools.convert("fsdp-to-hf", tmp_path / "fsdp", tmp_path / "hf")
    monkeypatch.chdir(tmp_path / "hf")
    weights = pathlib.Path(named)
    document = tools.run_ok("ckpt-inspect", "verify", named)
    assert document["checked_bytes"] == weights.stat().st_size and document["protection"] == "manifest", document
    assert document["problems"] == []
    flip_one_bit(weights, weights.stat().st_size - 100)
    code, document, stderr = tools.run("ckpt-inspect", "verify", named, "--json")
    assert code == 1 and [p["kind"] for p in document["problems"]] == ["checksum"], stderr
    code, document, stderr = tools.run("ckpt-inspect", "digest", named, "--json")
    assert code == 3 and document["errors"][0]["kind"] == "checksum", stderr
