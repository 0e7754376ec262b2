"""HDF5 files, both ways: h5py, its filters and h5dump read every form that we write, and we read what h5py writes."""
import json
import os
import random
import shutil
import subprocess

import pytest
import torch

import golden
import tools

FORMS = {"contiguous": (), "linked": ("--link",), "zstd": ("--compress", "zstd:5"), "files": ("--files", "3")}
# Tensors of every dtype, of odd shapes, cut in rows, in both dims, by ranks; of three formats.
CASES = ("dcp/dtypes", "dcp/shapes", "dcp/many_keys", "dcp/fsdp2_tp", "dcp/mesh_2d", "dcp/sharded_tensor", "dcp/pt_nested")
NUMPY = {"bool": "b1", "float16": "f2", "float32": "f4", "float64": "f8", "int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8",
         "uint8": "u1", "uint16": "u2", "uint32": "u4", "uint64": "u8", "complex64": "c8", "complex128": "c16"}
OTHERS = {"bfloat16": "u2", "complex32": "u4", "bcomplex32": "u4"}  # and float8, float4: u1


def h5py_reads(path, cwd=None):
    return tools.peer("hdf5", "hdf5_read.py", path, cwd=cwd)[str(path)]


def expected_of(path):
    """What h5py must read of a checkpoint's tensors."""
    return {key: {"shape": shape, "dtype": dtype, "sha256": sha} for key, (shape, dtype, sha) in tools.described(path).items()}


def source_of(name):
    folder = golden.root() / name
    return folder / json.loads((folder / "expected.json").read_text())["path"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CASES)
def test_h5py_reads_every_value(name, form, tmp_path):
    source = source_of(name)
    report = tools.convert("to-hdf5", source, tmp_path / "out.h5", *FORMS[form])
    expected = expected_of(source)
    read = h5py_reads(tmp_path / "out.h5", cwd="/")
    assert read["tensors"] == expected
    for key, kind in read["kinds"].items():
        dtype = expected[key]["dtype"]
        assert kind == NUMPY.get(dtype, OTHERS.get(dtype, "u1"))
    assert set(read["objects"]) == {o["key"] for o in tools.inspect("tensors", source)["objects"]}
    for entry in report["dropped"]:  # what only a digest is left of is there as a text
        assert (entry["key"] in read["objects"]) == entry["why"].startswith("as a text alone"), entry
    assert tools.described(tmp_path / "out.h5") == tools.described(source)
    if form == "linked":
        chunks = tools.inspect("summary", source)["chunks"] + len(read["objects"])
        assert (tmp_path / "out.h5").stat().st_size <= max(1_000_000, 2000 * chunks)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["dcp/dtypes", "dcp/fsdp2_tp"])
def test_h5py_finds_the_checksum_of_every_data_set(name, form, tmp_path):
    tools.convert("to-hdf5", source_of(name), tmp_path / "out.h5", *FORMS[form])
    sums = {}
    for path in sorted(tmp_path.glob("out*.h5")):
        read = h5py_reads(path)
        assert read["others"] == []
        sums.update({f"{path.name}/{of}": is_right for of, is_right in read["checksums"].items()})
    assert all(sums.values()), sums
    elements = [of for of in sums if "/tensors/" in of or "/chunks/" in of]
    # Of a compressed file, those of tensors without dims.
    assert bool(elements) == (form in ("contiguous", "files") or (form, name) == ("zstd", "dcp/fsdp2_tp")), sums


@pytest.mark.parametrize("form", FORMS)
def test_h5dump_reads_it(form, tmp_path):
    assert shutil.which("h5dump"), "no h5dump: tools/dev/setup installs it (Debian: hdf5-tools)"
    tools.convert("to-hdf5", source_of("dcp/mesh_2d"), tmp_path / "out.h5", *FORMS[form])
    filters = tools.peer("hdf5", "hdf5_plugins.py")["path"]  # Debian's own has no zstd filter
    done = subprocess.run(["h5dump", str(tmp_path / "out.h5")], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "HDF5_PLUGIN_PATH": filters})
    assert done.returncode == 0 and "error" not in done.stderr, done.stderr
    assert done.stdout.count("DATASET") >= 9 and done.stdout.count("DATA {") >= 9


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("container", ["dcp", "safetensors"])
def test_digests_are_equal_along_a_chain(container, form, tmp_path):
    source = source_of("dcp/fsdp2_tp")
    tools.convert("to-hdf5", source, tmp_path / "out.h5", *FORMS[form])
    tools.convert("from-hdf5", tmp_path / "out.h5", tmp_path / "back", "--to", container)
    tools.convert("to-hdf5", tmp_path / "back", tmp_path / "again.h5")
    digests = {tools.inspect("digest", path)["checkpoint"] for path in (source, tmp_path / "out.h5", tmp_path / "back",
                                                                       tmp_path / "again.h5")}
    assert len(digests) == 1


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    draw = random.Random(5)
    documents = [[draw.randrange(100) for _ in range(60)] for _ in range(8)]
    path = tmp_path_factory.mktemp("data") / "tokens.jsonl"
    path.write_text("".join(json.dumps({"input_ids": document}) + "\n" for document in documents))
    return path


def train(root, ranks, steps, tokens, save_format):
    """The losses of a run that is saved in `root`, and goes on from there."""
    metrics = root.with_name(f"{root.name}-{ranks}-{steps}.jsonl")
    settings = {"init": f"hf:{source_of('hf/llama-tied-fp32')}", "seq_length": 16, "global_batch_size": 4, "micro_batch_size": 1,
                "lr": 0.001, "train_iters": 4, "exit_interval": steps, "data_path": tokens, "save": root, "load": root,
                "save_format": save_format, "metrics": metrics}
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    code, _, stderr = tools.run("ckpt-train", "--ranks", ranks, *words)
    assert code == 0, stderr
    return [json.loads(line)["loss"] for line in metrics.read_text().splitlines()]


def state_digest(run):
    return subprocess.run([tools.BIN / "ckpt-train", "--load", run, "--print-state-digest", "--quiet"], check=True,
                          capture_output=True).stdout


@pytest.mark.parametrize("ranks, later", [(1, 4), (2, 1), (4, 2)])
def test_h5py_reads_a_run_that_goes_on(ranks, later, tokens, tmp_path):
    usual, h5 = tmp_path / "usual", tmp_path / "h5"
    assert train(usual, ranks, 2, tokens, "fsdp_dtensor") == train(h5, ranks, 2, tokens, "hdf5")
    saved, usually = h5 / "iter_0000002", usual / "iter_0000002"
    assert tools.described(saved) == tools.described(usually)
    read = h5py_reads(saved / "checkpoint.h5")
    assert read["tensors"] == expected_of(usually)
    assert set(read["objects"]) == {o["key"] for o in tools.inspect("tensors", usually)["objects"]}
    assert train(usual, later, 4, tokens, "fsdp_dtensor") == train(h5, later, 4, tokens, "hdf5")
    assert state_digest(usual) == state_digest(h5)
    assert tools.inspect("verify", saved)["ok"]
    for source in (saved, usually):
        tools.convert("convert", source, tmp_path / f"{source.parent.name}-core", "--to", "torch_dist")
    assert tools.described(tmp_path / "h5-core") == tools.described(tmp_path / "usual-core")
    # Back to what it was made of, where states of random generators are made anew of the same seed; and on in plain DCP.
    tools.convert("from-hdf5", saved, tmp_path / "back")
    assert tools.described(tmp_path / "back") == tools.described(usually)
    tools.convert("from-hdf5", saved, tmp_path / "plain", "--to", "dcp")
    assert tools.described(tmp_path / "plain") == tools.described(usually)
    assert state_digest(tmp_path / "plain") == state_digest(usually)


@pytest.mark.parametrize("form", ["contiguous", "zstd", "files"])
@pytest.mark.parametrize("stored", tools.RUN_FORMS)
def test_h5py_reads_a_run_under_the_names_of_each_format(stored, form, tmp_path):
    """Of a run of another container: the tensors and objects that a directory of the format has."""
    naming, options = tools.RUN_FORMS[stored]
    source = source_of("torch_dist/opt_fully_reshardable_dp1_core016")
    tools.convert("convert", source, tmp_path / "directory", *tools.RUN_FORMATS[naming], *options)
    tools.convert("convert", source, tmp_path / "run.h5", "--to", "hdf5", "--naming", naming, *options, *FORMS[form])
    read = h5py_reads(tmp_path / "run.h5")
    assert read["tensors"] == expected_of(tmp_path / "directory")
    # `_extra_state` of Transformer Engine holds nothing, and is there for Megatron's loader alone.
    objects = {o["key"] for o in tools.inspect("tensors", tmp_path / "directory")["objects"]}
    assert set(read["objects"]) == {key for key in objects if "_extra_state" not in key}


def test_a_repository_comes_back_as_it_was(tmp_path):
    source = source_of("hf/llama-tied-fp32")
    tools.convert("to-hdf5", source, tmp_path / "model.h5")
    tools.convert("from-hdf5", tmp_path / "model.h5", tmp_path / "back", "--hf-assets", source)
    assert tools.inspect("summary", tmp_path / "back")["format"] == "hf"
    for file in source.glob("*.safetensors"):
        assert (tmp_path / "back" / file.name).read_bytes() == file.read_bytes()


def test_tensors_are_chosen_renamed_and_cast(tmp_path):
    source = source_of("dcp/mesh_2d")
    first, second, *_ = sorted(key for key, (_, dtype, _) in tools.described(source).items() if dtype == "float32")
    report = tools.convert("to-hdf5", source, tmp_path / "out.h5", "--only", first, second, "--drop", second, "--rename", f"{first}=a/b",
                           "--dtype", "float16")
    assert report["digest"]["source"] is None
    assert {entry["key"] for entry in report["dropped"]} >= {second}
    (key, tensor), = h5py_reads(tmp_path / "out.h5")["tensors"].items()
    assert (key, tensor["shape"], tensor["dtype"]) == ("a/b", tools.described(source)[first][0], "float16")


def test_a_plan_writes_nothing(tmp_path):
    document = tools.convert("to-hdf5", source_of("dcp/shapes"), tmp_path / "out.h5", "--plan")
    assert [file["name"] for file in document["files"]] == ["out.h5"] and os.listdir(tmp_path) == []


def test_what_cannot_be_linked_is_named(tmp_path):
    code, document, _ = tools.run("ckpt-convert", "to-hdf5", "--link", source_of("dcp/zstd"), tmp_path / "out.h5", "--json")
    assert code == 3 and not (tmp_path / "out.h5").exists()
    assert all(error["kind"] == "unsupported" and error["tensor"] for error in document["errors"])


def test_files_that_no_reader_follows_a_link_into_are_named(tmp_path):
    tools.convert("to-hdf5", source_of("dcp/shapes"), tmp_path / "whole.h5")
    sums = tools.digests(tmp_path / "whole.h5")
    (tmp_path / "whole.h5").rename(tmp_path / "whole.data")
    code, document, _ = tools.run("ckpt-convert", "to-hdf5", "--link", tmp_path / "whole.data", tmp_path / "out.h5", "--json")
    assert code == 3 and os.listdir(tmp_path) == ["whole.data"]
    assert {error["tensor"] for error in document["errors"]} < set(sums)
    assert all(error["kind"] == "unsupported" and "not named as weights" in error["message"] for error in document["errors"])
    (tmp_path / "whole.data").rename(tmp_path / "whole.mat")  # as MATLAB names them
    tools.convert("to-hdf5", "--link", tmp_path / "whole.mat", tmp_path / "out.h5")
    assert tools.digests(tmp_path / "out.h5") == sums
    assert h5py_reads(tmp_path / "out.h5", cwd="/")["tensors"] == expected_of(tmp_path / "whole.mat")


def test_a_target_of_several_files_is_replaced_on_request(tmp_path):
    source, other = source_of("dcp/shapes"), source_of("dcp/mesh_2d")
    names = ["out-00001-of-00002.h5", "out-00002-of-00002.h5", "out.h5"]
    tools.convert("to-hdf5", source, tmp_path / "out.h5", "--files", "2")
    assert sorted(os.listdir(tmp_path)) == names
    code, document, _ = tools.run("ckpt-convert", "to-hdf5", source, tmp_path / "out.h5", "--files", "2", "--json")
    assert code == 3 and document["errors"][0]["kind"] == "already_exists"
    # The old parts keep their names to the end, so new ones have others.
    tools.convert("to-hdf5", other, tmp_path / "out.h5", "--files", "2", "--overwrite")
    assert sorted(os.listdir(tmp_path)) == [name.replace("2.h5", "2-b.h5") for name in names]
    assert h5py_reads(tmp_path / "out.h5")["tensors"] == expected_of(other)
    tools.convert("to-hdf5", source, tmp_path / "out.h5", "--files", "2", "--overwrite")
    assert sorted(os.listdir(tmp_path)) == names
    assert h5py_reads(tmp_path / "out.h5")["tensors"] == expected_of(source)


def test_no_file_of_another_kind_is_replaced_beside_the_target(tmp_path):
    source = source_of("dcp/shapes")
    tools.convert("to-hdf5", source, tmp_path / "out.h5", "--files", "2")
    # Nor does a run that goes on replace what an interrupted one cannot have moved there.
    part = tmp_path / "out-00002-of-00002.h5"
    part.write_bytes(b"x" + part.read_bytes()[1:])
    code, document, _ = tools.run("ckpt-convert", "to-hdf5", source, tmp_path / "out.h5", "--files", "2", "--overwrite", "--resume", "--json")
    assert code == 3 and document["errors"][0]["kind"] == "already_exists" and document["errors"][0]["file"] == str(part)


def test_a_tensor_of_many_chunks_is_compressed(tmp_path):
    script = "import h5py, numpy as np\nwith h5py.File('big.h5', 'w') as f: f['w'] = np.arange(9_000_000, dtype='f4').reshape(9000, 1000)"
    subprocess.run([tools.PYTHONS["hdf5"], "-c", script], check=True, cwd=tmp_path)
    tools.convert("to-hdf5", tmp_path / "big.h5", tmp_path / "out.h5", "--compress", "zstd")
    assert tools.inspect("tensors", tmp_path / "out.h5")["tensors"][0]["chunks"] == 3
    assert (tmp_path / "out.h5").stat().st_size < 30_000_000
    assert h5py_reads(tmp_path / "out.h5")["tensors"] == expected_of(tmp_path / "big.h5")


def test_a_file_is_replaced_only_on_request_and_only_one_of_its_kind(tmp_path):
    source = source_of("dcp/shapes")
    target = tmp_path / "out.h5"
    tools.convert("to-hdf5", source, target)
    before = target.read_bytes()
    assert tools.run("ckpt-convert", "to-hdf5", source, target)[0] == 3
    tools.convert("to-hdf5", source_of("dcp/mesh_2d"), target, "--overwrite")
    assert target.read_bytes() != before
    target.write_text("a text of mine")
    assert tools.run("ckpt-convert", "to-hdf5", source, target, "--overwrite")[0] == 3
    assert target.read_text() == "a text of mine"
    assert os.listdir(tmp_path) == ["out.h5"]


def test_what_others_say_of_our_groups_does_no_harm(tmp_path):
    """An attribute of a type that is not read leaves the tensors readable; links that are gone do not pass for none."""
    target = tmp_path / "out.h5"
    tools.convert("to-hdf5", source_of("dcp/shapes"), target)
    before = tools.described(target)
    edit = "import h5py, numpy, sys; f = h5py.File(sys.argv[1], 'r+'); g = f['tensors']; "
    note = "g.attrs['note'] = numpy.zeros(2, [('a', 'i4'), ('b', 'f8')])"
    subprocess.run([tools.PYTHONS["hdf5"], "-c", edit + note, target], check=True)
    assert tools.described(target) == before
    subprocess.run([tools.PYTHONS["hdf5"], "-c", edit + "del g[list(g)[0]]", target], check=True)
    code, document, _ = tools.run("ckpt-inspect", "tensors", target, "--json")
    assert code != 0 and "lacks links" in document["errors"][0]["message"]


def test_files_of_h5py_are_read(tmp_path):
    script = tools.ROOT / "tests" / "golden" / "hdf5" / "make.py"
    subprocess.run([tools.PYTHONS["hdf5"], str(script), str(tmp_path)], check=True, timeout=300)
    files = json.loads((tmp_path / "expected.json").read_text())["files"]
    assert len(files) == 4
    for name, tensors in files.items():
        expected = {key: (t["shape"], t["dtype"], t["sha256"]) for key, t in tensors.items()}
        assert tools.described(tmp_path / name) == expected


def test_texts_are_those_that_h5py_reads(tmp_path):
    path, copy = tmp_path / "texts.h5", tmp_path / "texts.pt"
    theirs = tools.peer("hdf5", "hdf5_texts.py", path)
    report = tools.convert("convert", path, copy, "--to", "torch_save")
    ours = {key: value if isinstance(value, bytes) else value.encode() for key, value in torch.load(copy).items() if not torch.is_tensor(value)}
    assert {key: value.hex() for key, value in ours.items()} == theirs
    (enumeration,) = (problem for problem in report["problems"] if "enumeration" in problem["message"])
    assert enumeration["tensor"] == "colours"


@pytest.mark.parametrize("version", ["earliest", "latest"])
def test_texts_in_chunks_are_those_that_h5py_reads(version, tmp_path):
    path = tmp_path / "chunks.h5"
    theirs = tools.peer("hdf5", "hdf5_texts.py", path, "chunks", version)
    assert len(theirs) == 23
    assert tools.inspect("meta", path)["objects"] == theirs
    tools.convert("convert", path, tmp_path / "copy.pt", "--to", "torch_save")
    assert {key: value for key, value in torch.load(tmp_path / "copy.pt").items() if not torch.is_tensor(value)} == theirs


def test_only_bytes_with_a_checksum_count_as_checked(tmp_path):
    path = tmp_path / "summed.h5"

    def add(name, **options):
        script = f"import h5py, numpy\nwith h5py.File('{path}', 'a') as f: f.create_dataset('{name}', data=numpy.arange(1000.0), **{options})"
        subprocess.run([tools.PYTHONS["hdf5"], "-c", script], check=True)
        verified = tools.inspect("verify", path)
        stored = sum(chunk["length"] for chunk in tools.inspect("shards", path)["chunks"])
        return verified["protection"], verified["checked_bytes"], stored

    for name, options in {"fletcher32": {"chunks": (300,), "fletcher32": True}, "gzip": {"chunks": (300,), "compression": "gzip"}}.items():
        protection, checked, stored = add(name, **options)
        assert protection == "crc32" and checked == stored > 0
    # Frames of zstd have checksums where we write them.
    tools.convert("to-hdf5", path, tmp_path / "copy.h5", "--compress", "zstd")
    verified = tools.inspect("verify", tmp_path / "copy.h5")
    assert verified["protection"] == "crc32" and verified["checked_bytes"] > 0
    # What has no checksum is not counted.
    before = tools.inspect("verify", path)["checked_bytes"]
    assert add("lzf", chunks=(300,), compression="lzf")[:2] == ("crc32", before)


def test_a_key_that_is_no_text_is_refused_before_anything_is_written(tmp_path):
    path = tmp_path / "bytes.h5"
    tools.peer("hdf5", "hdf5_texts.py", path, "key")
    for to in ("safetensors", "dcp", "torch_save"):
        code, _, said = tools.run("ckpt-convert", "convert", path, tmp_path / to, "--to", to)
        assert code != 0 and "no key that is not UTF-8" in said, said
    assert [entry.name for entry in tmp_path.iterdir()] == ["bytes.h5"]
    tools.convert("to-hdf5", path, tmp_path / "copy.h5")


@pytest.mark.parametrize("block", [512, 4096])
@pytest.mark.parametrize("version", ["earliest", "latest"])
def test_files_with_a_block_of_matlab_are_read(version, block, tmp_path):
    path = tmp_path / "saved.mat"
    theirs = {key: tuple(account) for key, account in tools.peer("hdf5", "hdf5_user_block.py", path, version, block).items()}
    assert len(theirs) == 44
    described = {key: (list(shape), dtype, sha) for key, (shape, dtype, sha) in tools.described(path).items()}
    assert described == theirs
    assert tools.inspect("meta", path)["objects"] == {"texts": ["a", "bcd"], "word": "alone", "@name": "a text"}
    # A copy has the same elements, and so has a file that shows them by their places.
    tools.convert("to-hdf5", path, tmp_path / "copy.h5")
    assert tools.described(tmp_path / "copy.h5") == tools.described(path)
    shutil.copy(path, tmp_path / "named.h5")  # as files that may be shown must be
    tools.convert("to-hdf5", tmp_path / "named.h5", tmp_path / "shown.h5", "--link", "--only", "rows", "--only", "many/*")
    shown = h5py_reads(tmp_path / "shown.h5")["tensors"]
    assert len(shown) == 41 and shown == {key: {"shape": theirs[key][0], "dtype": theirs[key][1], "sha256": theirs[key][2]} for key in shown}
    path.write_bytes(path.read_bytes()[:-200])
    assert tools.run("ckpt-inspect", "verify", path)[0] != 0


@pytest.fixture(scope="module")
def filtered(tmp_path_factory):
    path = tmp_path_factory.mktemp("filters") / "filters.h5"
    return path, {key: tuple(account) for key, account in tools.peer("hdf5", "hdf5_filters.py", path, "filters").items()}


def test_every_filter_of_h5py_is_undone(filtered, tmp_path):
    path, expected = filtered
    assert tools.described(path) == expected
    tools.convert("convert", path, tmp_path / "out.h5", "--to", "hdf5")
    assert tools.described(tmp_path / "out.h5") == expected


def test_a_flipped_bit_is_found_by_the_checksum_of_a_chunk(filtered, tmp_path):
    path, _ = filtered
    chunk = next(c for c in tools.inspect("shards", path)["chunks"] if c["key"] == "noise/fletcher32")
    content = bytearray(path.read_bytes())
    content[chunk["offset"] + 7] ^= 1
    (tmp_path / "damaged.h5").write_bytes(content)
    code, document, _ = tools.run("ckpt-inspect", "verify", tmp_path / "damaged.h5", "--json")
    error, = (p for p in document["problems"] if p["severity"] == "error")
    assert (code, error["kind"], error["tensor"]) == (1, "checksum", "noise/fletcher32")


@pytest.mark.parametrize("version", ["earliest", "v110", "latest"])
@pytest.mark.parametrize("what", ["shapes", "virtual"])
def test_data_sets_that_grew_and_virtual_ones_with_gaps_are_as_h5py_reads_them(what, version, tmp_path):
    theirs = tools.peer("hdf5", "hdf5_filters.py", tmp_path / "made.h5", what, version)
    assert len(theirs) > 50
    assert tools.described(tmp_path / "made.h5") == {key: tuple(account) for key, account in theirs.items()}


def test_a_virtual_data_set_whose_source_grew_is_not_cut_off(tmp_path):
    tools.peer("hdf5", "hdf5_filters.py", tmp_path / "made.h5", "virtual", "latest")
    script = "import h5py\nwith h5py.File('50%_made.h5', 'r+') as f: f['plain'].resize((22, 20))"
    subprocess.run([tools.PYTHONS["hdf5"], "-c", script], check=True, cwd=tmp_path)
    code, document, _ = tools.run("ckpt-inspect", "verify", tmp_path / "made.h5", "--json")
    assert code == 3 and {"rows_from_0", "rows_from_5"} <= set(document["not_understood"])


@pytest.mark.parametrize("version", ["earliest", "latest"])
def test_what_is_odd_in_a_file_hides_nothing_else(version, tmp_path):
    theirs = tools.peer("hdf5", "hdf5_filters.py", tmp_path / "made.h5", "odd", version)
    code, document, _ = tools.run("ckpt-inspect", "verify", tmp_path / "made.h5", "--json")
    assert (code, document["not_understood"]) == (3, ["@committed", "long", "pairs"])
    warned = {p["tensor"]: p["actual"] for p in document["problems"] if p["severity"] == "warning"}
    assert warned == {"a/loop": 'the group "/a"', "second": 'the group "/a/b"', "x@y": None}
    listed = tools.inspect("tensors", tmp_path / "made.h5")
    digests = tools.inspect("digest", tmp_path / "made.h5", "--algorithm", "sha256")["tensors"]
    assert {t["key"]: (t["shape"], t["dtype"], digests[t["key"]]) for t in listed["tensors"]} == {key: tuple(a) for key, a in theirs.items()}
    about = {f"{name}@about" for name in ("type", "text", "none", "pairs")}
    assert {o["key"] for o in listed["objects"]} == {"@known", "@committed", "text", "none", "long", "pairs", *about, *(["@many"] if version == "latest" else [])}
    # Elements that are not understood are left out by nobody in silence.
    code, document, _ = tools.run("ckpt-convert", "convert", tmp_path / "made.h5", tmp_path / "out.h5", "--to", "hdf5", "--json")
    assert code == 3 and {error["tensor"] for error in document["errors"]} == {"@committed", "long", "pairs"}
