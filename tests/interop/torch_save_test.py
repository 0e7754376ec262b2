"""One file as torch.save writes it: torch.load takes it, Python's zipfile finds every checksum right, programs go on from it."""
import argparse
import collections
import copy
import json
import pickle
import zipfile

import numpy
import pytest
import torch
import transformers
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

import golden
import tools

CASES = ("dcp/dtypes", "dcp/shapes", "dcp/many_keys", "dcp/mesh_2d", "fsdp_dtensor/dense_fsdp2", "hf/llama-tied-fp32")
# With objects of classes that weights_only refuses: argparse.Namespace, enums of Megatron-Core, numpy's arrays.
WITH_CLASSES = {"fsdp_dtensor/dense_fsdp2"}
# Types that torch 2.4 lacks.
NEW_DTYPES = {"float4_e2m1fn_x2", "float8_e8m0fnu"}


def source_of(name):
    case = golden.root() / name
    return case / golden.account(case).get("path", "ckpt")


def loaded(environment, path, *how):
    return tools.peer(environment, "torch_load.py", path, *how)


def objects_of(path):
    """Key -> the object as text, every tensor in it by its digest."""
    return tools.inspect("meta", path)["objects"]


@pytest.mark.parametrize("name", CASES)
def test_torch_loads_every_value(name, tmp_path):
    source = source_of(name)
    report = tools.convert("convert", source, tmp_path / "out.pt", "--to", "torch_save")
    expected = {key: {"shape": shape, "dtype": dtype, "sha256": sha} for key, (shape, dtype, sha) in tools.described(source).items()}
    how = ["classes"] if name in WITH_CLASSES else []
    assert loaded("2.15.0", tmp_path / "out.pt", *how) == expected
    if name in WITH_CLASSES:
        with pytest.raises(pickle.UnpicklingError, match="weights_only"):
            torch.load(tmp_path / "out.pt", weights_only=True)
    elif not any(tensor["dtype"] in NEW_DTYPES for tensor in expected.values()):
        assert loaded("2.4.1", tmp_path / "out.pt") == expected
    with zipfile.ZipFile(tmp_path / "out.pt") as archive:
        assert archive.testzip() is None
    assert report["digest"]["source"] == report["digest"]["target"]
    assert tools.inspect("digest", tmp_path / "out.pt")["checkpoint"] == tools.inspect("digest", source)["checkpoint"]
    assert tools.inspect("verify", tmp_path / "out.pt")["protection"] == "crc32"
    objects = {o["key"] for o in tools.inspect("tensors", source)["objects"]}
    assert not objects & {entry["key"] for entry in report["dropped"]}
    if objects:
        assert objects_of(tmp_path / "out.pt") == objects_of(source)


@pytest.mark.parametrize("name", ["dcp/mesh_2d", "dcp/fsdp2_tp"])
def test_it_has_the_tensors_of_torchs_own_conversion(name, tmp_path):
    source = source_of(name)
    theirs = tools.peer("2.15.0", "dcp_load.py", "torch_save", source, tmp_path / "theirs.pt")["tensors"]
    tools.convert("dcp-to-torch", source, tmp_path / "ours.pt")
    assert loaded("2.15.0", tmp_path / "ours.pt") == theirs
    tools.convert("torch-to-dcp", tmp_path / "ours.pt", tmp_path / "back", "--files", "3")
    assert tools.peer("2.15.0", "dcp_load.py", "plain", tmp_path / "back")["tensors"] == theirs


def training_state():
    """What a training loop saves in one file: hardly anything of it is a tensor."""
    model = torch.nn.Linear(3, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer)
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)], [3])
    return {"model": model.state_dict(), "optim": optimizer.state_dict(), "scheduler": scheduler.state_dict(), "epoch": 3, "best": None,
            "args": argparse.Namespace(lr=0.1, name="x"), "config": {"layers": [1, 2, {"kinds": ("a", 7)}], "text": "ü"}, "history": [0.5, 0.25]}


def test_what_is_no_tensor_becomes_what_torch_makes_of_it(tmp_path):
    torch.save(training_state(), tmp_path / "state.pt")
    torch_save_to_dcp(tmp_path / "state.pt", tmp_path / "theirs")
    document = tools.convert("torch-to-dcp", tmp_path / "state.pt", tmp_path / "ours")
    assert document["dropped"] == []
    ours, theirs = state_in(tmp_path / "ours"), state_in(tmp_path / "theirs")
    assert list(theirs) == list(ours)
    for key, value in theirs.items():
        same = torch.equal(ours[key], value) if isinstance(value, torch.Tensor) else ours[key] == value
        assert same and type(ours[key]) is type(value), key


@pytest.mark.parametrize("is_flat", [False, True])
def test_a_run_in_one_file_is_a_training_state(is_flat, tmp_path):
    """What get_state_dict gathers, saved by torch.save, becomes what it becomes from DCP."""
    config = transformers.LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
    model = transformers.LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.arange(16).reshape(2, 8)
    model(tokens, labels=tokens).loss.backward()
    optimizer.step()
    options = StateDictOptions(flatten_optimizer_state_dict=is_flat)
    weights, state = get_state_dict(model, optimizer, options=options)
    torch.save({"model": weights, "optim": state}, tmp_path / "run.pt")
    torch.distributed.checkpoint.save({"model": weights, "optim": state}, checkpoint_id=str(tmp_path / "run"), no_dist=True)
    config.save_pretrained(tmp_path / "assets")
    for source, target in (("run.pt", "of_file"), ("run", "of_dcp")):
        document = tools.convert("convert", tmp_path / source, tmp_path / target, "--to", "fsdp_dtensor", "--hf-assets", tmp_path / "assets")
        assert document["dropped"] == []
    described = tools.described(tmp_path / "of_file")
    assert any(key.startswith("optimizer.") for key in described)
    assert described == tools.described(tmp_path / "of_dcp")
    objects, others = (tools.inspect("meta", tmp_path / target)["objects"] for target in ("of_file", "of_dcp"))
    assert objects == others


@pytest.mark.parametrize("stored", tools.RUN_FORMS)
def test_torch_loads_a_run_under_the_names_of_each_format(stored, tmp_path):
    """Of a run of another container: the tensors and objects that a directory of the format has."""
    naming, options = tools.RUN_FORMS[stored]
    source = source_of("torch_dist/opt_fully_reshardable_dp1_core016")
    tools.convert("convert", source, tmp_path / "directory", *tools.RUN_FORMATS[naming], *options)
    tools.convert("convert", source, tmp_path / "run.pt", "--to", "torch_save", "--naming", naming, *options)
    described = tools.described(tmp_path / "directory")
    expected = {key: {"shape": shape, "dtype": dtype, "sha256": sha} for key, (shape, dtype, sha) in described.items()}
    how = ["classes"] if naming != "fsdp2" else []
    read = loaded("2.15.0", tmp_path / "run.pt", *how)
    if naming == "torch_dist":  # whose random states are objects with tensors inside
        read = {key: tensor for key, tensor in read.items() if not key.startswith("rng_state")}
    assert read == expected
    objects = objects_of(tmp_path / "directory")
    assert objects_of(tmp_path / "run.pt") == {key: value for key, value in objects.items() if "_extra_state" not in key}


def nested(checkpoint, tmp_path):
    """The object that torch makes of a whole checkpoint."""
    dcp_to_torch_save(checkpoint, tmp_path / "nested.pt")
    return torch.load(tmp_path / "nested.pt", weights_only=False)


def assert_same(ours, theirs, path=()):
    assert type(ours) is type(theirs), path
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys(), path
        for key in theirs:
            assert_same(ours[key], theirs[key], (*path, key))
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs), path
        for position, value in enumerate(theirs):
            assert_same(ours[position], value, (*path, position))
    else:
        assert torch.equal(ours, theirs) if isinstance(theirs, torch.Tensor) else ours == theirs, path


MIXED = {"a.b": torch.ones(3), "a": {"c": torch.zeros(2)}, 5: "five", "lists": [1, {"x": torch.ones(2)}, [torch.zeros(1), {"y": None}]],
         "deep": {"l": [[{"z": [torch.ones(1)]}]]}, "nothing": {"l": []}, "seen": {(1, 2): 3, None: 4},
         b"\xffb": torch.ones(1), "bytes": {b"": 1, (b"x'", 2): torch.zeros(1)}}


@pytest.mark.parametrize("state", [training_state, lambda: MIXED], ids=["training", "mixed"])
def test_torch_makes_the_nested_object_of_it(state, tmp_path):
    torch.save(state(), tmp_path / "state.pt")
    torch_save_to_dcp(tmp_path / "state.pt", tmp_path / "theirs")
    theirs = nested(tmp_path / "theirs", tmp_path)
    tools.convert("torch-to-dcp", tmp_path / "state.pt", tmp_path / "ours")
    assert_same(nested(tmp_path / "ours", tmp_path), theirs)
    # From a DCP of torch's own, and from ours.
    for source in ("theirs", "ours"):
        tools.convert("convert", tmp_path / source, tmp_path / f"{source}-again", "--to", "dcp", "--files", "2")
        assert_same(nested(tmp_path / f"{source}-again", tmp_path), theirs)
    # What is chosen stands where it stood; what is renamed, on top.
    if state is training_state:
        tools.convert("torch-to-dcp", tmp_path / "state.pt", tmp_path / "some", "--only", "model.*", "--rename", "model.bias=b")
        assert_same(nested(tmp_path / "some", tmp_path), {"model": {"weight": theirs["model"]["weight"]}, "b": theirs["model"]["bias"]})


def test_dcp_load_takes_nested_templates(tmp_path):
    torch.save(training_state(), tmp_path / "state.pt")
    tools.convert("torch-to-dcp", tmp_path / "state.pt", tmp_path / "ours")
    model = torch.nn.Linear(3, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.7)
    model(torch.zeros(2, 3)).sum().backward()
    optimizer.step()
    torch.optim.lr_scheduler.LinearLR(optimizer)  # which adds to the groups, as it did before the save
    template = {"model": model.state_dict(), "optim": optimizer.state_dict(), "config": {"layers": [0, 0, {"kinds": None}]}, "epoch": 0}
    torch.distributed.checkpoint.load(template, checkpoint_id=str(tmp_path / "ours"), no_dist=True)
    saved = torch.load(tmp_path / "state.pt", weights_only=False)
    for part, value in template.items():
        assert_same(value, saved[part] if part != "config" else {"layers": saved[part]["layers"]})
    optimizer.load_state_dict(template["optim"])
    assert optimizer.param_groups[0]["lr"] == saved["optim"]["param_groups"][0]["lr"]


def test_keys_that_are_one_text_are_not_nested(tmp_path):
    torch.save({1: torch.ones(2), "1": torch.zeros(2), "a": {"b": 7}}, tmp_path / "state.pt")
    document = tools.convert("torch-to-dcp", tmp_path / "state.pt", tmp_path / "dcp")
    assert any("one flat mapping" in problem["message"] for problem in document["problems"])
    assert_same(nested(tmp_path / "dcp", tmp_path), {"[1]": torch.ones(2), "['1']": torch.zeros(2), "a.b": 7})


def test_mappings_that_text_makes_one_are_not_merged(tmp_path):
    torch.save({0: {"w": torch.ones(2)}, "0": {"v": torch.zeros(2)}}, tmp_path / "state.pt")
    document = tools.convert("torch-to-dcp", tmp_path / "state.pt", tmp_path / "dcp")
    assert any("one flat mapping" in problem["message"] for problem in document["problems"])
    assert_same(nested(tmp_path / "dcp", tmp_path), {"0.w": torch.ones(2), "0.v": torch.zeros(2)})


def test_keys_that_torch_joins_to_one_stand_on_top(tmp_path):
    """torch flattens the object that it makes of a DCP, and would find "a.b" twice."""
    state = {"a.b": torch.ones(2), "a": {"b": torch.zeros(2), "c": 7}, "l": [{"x": torch.ones(1)}], "l.0.x": 3}
    torch.save(state, tmp_path / "state.pt")
    assert tools.convert("torch-to-dcp", tmp_path / "state.pt", tmp_path / "dcp")["dropped"] == []
    read = state_in(tmp_path / "dcp")
    assert set(read) == {"['a.b']", "['a']['b']", "a.c", "['l'][0]['x']", "['l.0.x']"}
    assert torch.equal(read["['a.b']"], torch.ones(2)) and torch.equal(read["['a']['b']"], torch.zeros(2)) and read["['l.0.x']"] == 3
    assert_same(nested(tmp_path / "dcp", tmp_path)["['a']['b']"], torch.zeros(2))


def state_in(checkpoint):
    """Flat key -> value, sorted by key, as torch loads a whole checkpoint."""
    state = {}
    _load_state_dict(state, FileSystemReader(str(checkpoint)), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    return dict(sorted(flatten_state_dict(state)[0].items()))


def small_model():
    config = transformers.LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                                      tie_word_embeddings=False)
    return transformers.LlamaForCausalLM(config), config


class Loop:
    """A training loop of plain PyTorch: AdamW in two groups, and a schedule."""

    def __init__(self):
        torch.manual_seed(3)
        self.model, self.config = small_model()
        vectors = [p for p in self.model.parameters() if p.ndim == 1]
        matrices = [p for p in self.model.parameters() if p.ndim > 1]
        self.optimizer = torch.optim.AdamW([{"params": matrices}, {"params": vectors, "weight_decay": 0.0}], lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1 / (1 + step))

    def step(self, number):
        tokens = torch.randint(0, 64, (2, 12), generator=torch.Generator().manual_seed(number))
        loss = self.model(tokens, labels=tokens).loss
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        return loss.item()

    def losses(self, *numbers):
        return [self.step(number) for number in numbers]


def gathered(loop, is_flat):
    model, optim = get_state_dict(loop.model, loop.optimizer, options=StateDictOptions(flatten_optimizer_state_dict=is_flat))
    return copy.deepcopy({"model": model, "optim": optim, "lr_scheduler": loop.scheduler.state_dict()})


@pytest.mark.parametrize("form", ["nested", "flattened"])
@pytest.mark.parametrize("way", [[], ["fsdp_dtensor"], ["torch_dist"], ["hdf5"], ["torch_dist", "torch_save"]], ids="-".join)
def test_a_loop_goes_on_from_one_file(way, form, tmp_path):
    """DCP of real state dicts -> other forms -> one file: every value equal, and with them the next losses, bit for bit."""
    loop = Loop()
    loop.losses(0, 1)
    state = gathered(loop, form == "flattened")
    torch.distributed.checkpoint.save(state, checkpoint_id=str(tmp_path / "dcp"), no_dist=True)
    loop.config.save_pretrained(tmp_path / "dcp")
    source = tmp_path / "dcp"
    for number, container in enumerate(way):
        target = tmp_path / f"{number}{ {'hdf5': '.h5', 'torch_save': '.pt'}.get(container, '') }"
        tools.convert("convert", source, target, "--to", container)
        source = target
    naming = ["--naming", "fsdp2", "--optimizer-state-dict", form] if way else []
    if source.suffix:
        naming += ["--hf-assets", tmp_path / "dcp"]
    document = tools.convert("convert", source, tmp_path / "run.pt", "--to", "torch_save", *naming)
    # What torch has no place for, and the schedule of a program, which is told anew.
    assert {entry["why"] for entry in document["dropped"]} <= {
        "the target is one file", "random number generators", "FP8 scaling state of Transformer Engine", "learning-rate schedule"}
    left = {entry["key"] for entry in document["dropped"] if entry["why"] != "random number generators"}
    assert not left & set(tools.described(source))
    found = torch.load(tmp_path / "run.pt", weights_only=True)
    if not way:
        assert_same({"state": plain(found)}, {"state": plain(state)})

    other = Loop()
    other.losses(7)
    set_state_dict(other.model, other.optimizer, model_state_dict=found["model"], optim_state_dict=found["optim"])
    other.scheduler.load_state_dict(found["lr_scheduler"])
    again = gathered(other, form == "flattened")
    for part in ("model", "optim"):
        assert_same(sorted_names(plain(again[part])), sorted_names(plain(state[part])))
    assert other.losses(2, 3, 4) == loop.losses(2, 3, 4)


def plain(value):
    """Mappings as dict, tuples that hold tensors as lists: what Python's own types say of them."""
    if isinstance(value, dict):
        return {key: plain(below) for key, below in value.items()}
    return [plain(below) for below in value] if isinstance(value, list) else value


def sorted_names(state):
    """The order of names within a group means nothing."""
    if isinstance(state, dict):
        return {key: sorted(below) if key == "params" else sorted_names(below) for key, below in state.items()}
    return [sorted_names(below) for below in state] if isinstance(state, list) else state


@pytest.mark.parametrize("count", [int, float])
def test_counts_may_be_numbers_of_python(count, tmp_path):
    loop = Loop()
    loop.losses(0, 1)
    loop.config.save_pretrained(tmp_path / "assets")
    state = gathered(loop, False)
    torch.save(state, tmp_path / "tensors.pt")
    for kept in state["optim"]["state"].values():
        kept["step"] = count(kept["step"].item())
    torch.save(state, tmp_path / "numbers.pt")
    for target in (["--to", "fsdp_dtensor"], ["--to", "dcp", "--naming", "fsdp2"]):
        said = {}
        for name in ("tensors", "numbers"):
            folder = tmp_path / f"{name}-{target[1]}"
            tools.convert("convert", tmp_path / f"{name}.pt", folder, *target, "--hf-assets", tmp_path / "assets")
            said[name] = (tools.described(folder), tools.inspect("meta", folder)["objects"])
        assert said["tensors"] == said["numbers"]


def test_a_rate_that_is_a_tensor_is_told(tmp_path):
    loop = Loop()
    loop.losses(0, 1)
    loop.config.save_pretrained(tmp_path / "assets")
    state = gathered(loop, False)
    state["optim"]["param_groups"][0]["lr"] = torch.tensor(0.25)
    torch.save(state, tmp_path / "run.pt")
    for target in (["--to", "fsdp_dtensor"], ["--to", "dcp", "--naming", "fsdp2"]):
        document = tools.convert("convert", tmp_path / "run.pt", tmp_path / target[1], *target, "--hf-assets", tmp_path / "assets")
        told, = [p for p in document["problems"] if "become plain numbers" in p["message"]]
        assert told["tensor"] == told["actual"] == "optim.param_groups.0.lr"
    assert nested(tmp_path / "dcp", tmp_path)["optim"]["param_groups"][0]["lr"] == 0.25


def test_an_optimizer_takes_its_own_state_dict_back(tmp_path):
    """Parameters are numbers there, and stay numbers; so do lists, tuples and None."""
    loop = Loop()
    loop.losses(0, 1)
    torch.save({"model": loop.model.state_dict(), "optimizer": loop.optimizer.state_dict(), "scheduler": loop.scheduler.state_dict(),
                "epoch": 3, "best": None, "betas": (0.9, 0.99), "rng": torch.get_rng_state()}, tmp_path / "in.pt")
    document = tools.convert("convert", tmp_path / "in.pt", tmp_path / "out.pt", "--to", "torch_save")
    assert document["dropped"] == []
    found = torch.load(tmp_path / "out.pt", weights_only=True)
    assert_same(plain(found), plain(torch.load(tmp_path / "in.pt", weights_only=True)))
    other = Loop()
    other.model.load_state_dict(found["model"])
    other.optimizer.load_state_dict(found["optimizer"])
    other.scheduler.load_state_dict(found["scheduler"])
    assert other.losses(2, 3) == loop.losses(2, 3)


@pytest.mark.parametrize("state", [training_state, lambda: MIXED], ids=["training", "mixed"])
def test_what_was_nested_is_nested_again(state, tmp_path):
    torch.save(state(), tmp_path / "state.pt")
    assert tools.convert("convert", tmp_path / "state.pt", tmp_path / "out.pt", "--to", "torch_save")["dropped"] == []
    assert tools.described(tmp_path / "out.pt") == tools.described(tmp_path / "state.pt")
    keys = [o["key"] for o in tools.inspect("tensors", tmp_path / "state.pt")["objects"]]
    show = [[json.dumps(tools.inspect("show", tmp_path / name, key)["value"]) for key in keys] for name in ("out.pt", "state.pt")]
    assert show[0] == show[1]
    found, was = (torch.load(tmp_path / name, weights_only=False) for name in ("out.pt", "state.pt"))
    # Keys that are neither text nor integers become text, as in a DCP.
    assert {str(key) for key in was} == {str(key) for key in found}


RUNS = ("fsdp_dtensor/dense_fsdp2", "torch_dist/dense_dp2_async_core019", "torch_dist/dense_tp1_core018_integrity",
        "torch_dist/opt_fp32_dp2_core016", "torch_dist/hand_flattened_core012", "dcp/nested", "dcp/flatten_false")


@pytest.mark.parametrize("name", RUNS)
def test_objects_come_back_as_they_were(name, tmp_path):
    """Steps, groups, arguments, random states, buffers of FP8 (io.BytesIO): there and back, all of them."""
    source = source_of(name)
    assert tools.convert("convert", source, tmp_path / "run.pt", "--to", "torch_save")["dropped"] == []
    assert tools.convert("convert", tmp_path / "run.pt", tmp_path / "back", "--to", "dcp")["dropped"] == []
    for path in (tmp_path / "run.pt", tmp_path / "back"):
        assert tools.described(path) == tools.described(source)
        assert {o["key"]: tools.inspect("show", path, o["key"]) for o in tools.inspect("tensors", path)["objects"]} == {
            o["key"]: tools.inspect("show", source, o["key"]) for o in tools.inspect("tensors", source)["objects"]}


def test_what_a_pickle_calls_stays_behind(tmp_path):
    class Danger:
        def __reduce__(self):
            return print, ("called",)

    torch.save({"w": torch.ones(2), "danger": [Danger()], "epoch": 3}, tmp_path / "state.pt")
    for target, container in (("out.pt", "torch_save"), ("out", "dcp")):
        left, = tools.convert("convert", tmp_path / "state.pt", tmp_path / target, "--to", container)["dropped"]
        assert left["key"] == "danger.0" and "builtins.print" in left["why"]
    assert torch.load(tmp_path / "out.pt", weights_only=True)["epoch"] == 3


class Outer:
    class Inner:
        def __init__(self):
            self.x = 1


@pytest.mark.parametrize("protocol", [2, 4])
def test_an_instance_of_a_class_inside_a_class_is_an_object(protocol, tmp_path):
    torch.save({"w": torch.ones(2), "inner": Outer.Inner()}, tmp_path / "state.pt", pickle_protocol=protocol)
    assert list(tools.described(tmp_path / "state.pt")) == ["w"]
    assert tools.inspect("verify", tmp_path / "state.pt")["ok"]
    assert tools.inspect("show", tmp_path / "state.pt", "inner")["value"] == {"$opaque": f"{__name__}.Outer.Inner"}
    left, = tools.convert("convert", tmp_path / "state.pt", tmp_path / "out.pt", "--to", "torch_save")["dropped"]
    assert left["key"] == "inner" and "inside another class" in left["why"]
    assert list(torch.load(tmp_path / "out.pt", weights_only=True)) == ["w"]


def test_a_value_that_differs_is_shown(tmp_path):
    state = training_state()
    torch.save(state, tmp_path / "a.pt")
    state["optim"]["param_groups"][0]["lr"] = 0.2
    torch.save(state, tmp_path / "b.pt")
    assert "optim.param_groups.0.lr" in json.dumps(tools.inspect("diff", tmp_path / "a.pt", tmp_path / "b.pt"))


def test_arrays_of_numpy_come_along(tmp_path):
    torch.save({"w": torch.ones(2), "seen": numpy.arange(3), "epoch": 3}, tmp_path / "state.pt")
    assert tools.convert("torch-to-dcp", tmp_path / "state.pt", tmp_path / "dcp")["dropped"] == []
    assert state_in(tmp_path / "dcp")["seen"].tolist() == [0, 1, 2]
    tools.convert("convert", tmp_path / "dcp", tmp_path / "again.pt", "--to", "torch_save")
    assert torch.load(tmp_path / "again.pt", weights_only=False)["seen"].tolist() == [0, 1, 2]
    document = tools.convert("convert", tmp_path / "state.pt", tmp_path / "weights", "--to", "safetensors")
    assert [entry["key"] for entry in document["dropped"]] == ["epoch", "seen"]


def quantised():
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 4))
    return torch.ao.quantization.quantize_dynamic(layers, {torch.nn.Linear}, dtype=torch.qint8)


def test_what_stands_beside_a_state_dict_comes_along(tmp_path):
    """Quantised modules find out by _metadata how their weights are stored."""
    module = quantised()
    torch.save({"model": module.state_dict(), "epoch": 3}, tmp_path / "in.pt")
    assert tools.convert("convert", tmp_path / "in.pt", tmp_path / "out.pt", "--to", "torch_save")["dropped"] == []
    assert tools.described(tmp_path / "out.pt") == tools.described(tmp_path / "in.pt")
    found = torch.load(tmp_path / "out.pt", weights_only=False)
    assert found["model"]._metadata == module.state_dict()._metadata and found["epoch"] == 3
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    other = quantised()
    other.load_state_dict(found["model"])
    x = torch.randn(2, 6)
    assert torch.equal(other(x), quantised()(x))


@pytest.mark.parametrize("how", [("--to", "dcp"), ("--to", "safetensors"), ("--to", "hdf5"), ("--to", "torch_save", "--rename", "model.*=*")],
                         ids=lambda how: how[1])
def test_what_stands_beside_a_state_dict_is_listed_where_it_has_no_place(how, tmp_path):
    torch.save({"model": torch.nn.BatchNorm1d(2).state_dict()}, tmp_path / "in.pt")
    target = tmp_path / {"hdf5": "out.h5", "torch_save": "out.pt"}.get(how[1], "out")
    left, = tools.convert("convert", tmp_path / "in.pt", target, *how)["dropped"]
    assert left["key"] == "model._metadata" and left["bytes"] > 0 and left["why"]


def test_versions_that_loaders_take_for_granted_are_not_listed(tmp_path):
    torch.save({"model": torch.nn.Linear(2, 2).state_dict()}, tmp_path / "in.pt")
    assert tools.convert("convert", tmp_path / "in.pt", tmp_path / "out", "--to", "dcp")["dropped"] == []


def test_attributes_inside_an_object_come_along(tmp_path):
    inner = collections.OrderedDict(a=1)
    inner._metadata = {"x": 2}
    torch.save({"w": torch.ones(2), "kept": (inner, 5)}, tmp_path / "in.pt")
    assert tools.convert("convert", tmp_path / "in.pt", tmp_path / "out.pt", "--to", "torch_save")["dropped"] == []
    assert torch.load(tmp_path / "out.pt")["kept"][0]._metadata == {"x": 2}
    left, = tools.convert("convert", tmp_path / "in.pt", tmp_path / "out.h5", "--to", "hdf5")["dropped"]
    assert left["key"] == "kept" and "attributes" in left["why"]


class Labelled(torch.Tensor):
    pass


def test_attributes_and_classes_of_tensors_are_named(tmp_path):
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.partition_dim = 0
    torch.save({"a": parameter, "b": torch.ones(2).as_subclass(Labelled), "c": torch.ones(1)}, tmp_path / "in.pt")
    warning, = [p for p in tools.convert("convert", tmp_path / "in.pt", tmp_path / "out.pt", "--to", "torch_save")["problems"]]
    assert "attributes" in warning["message"] and warning["tensor"] == "a" and warning["actual"] == "partition_dim; 1 tensor more have some, too"


def test_classes_of_mappings_are_named(tmp_path):
    seen = collections.defaultdict(list, {"x": torch.ones(2), "y": 3})
    torch.save({"w": torch.ones(1), "seen": seen, "ordered": collections.OrderedDict(z=torch.ones(1))}, tmp_path / "in.pt")
    for target, container in (("out.pt", "torch_save"), ("out", "dcp")):
        warning, = tools.convert("convert", tmp_path / "in.pt", tmp_path / target, "--to", container)["problems"]
        assert warning["tensor"] == "seen" and warning["actual"] == "class collections.defaultdict"
    assert type(torch.load(tmp_path / "out.pt", weights_only=True)["seen"]) is dict


def test_a_file_that_is_one_list_is_told(tmp_path):
    torch.save([torch.ones(2), {"x": torch.zeros(1)}], tmp_path / "in.pt")
    warning, = tools.convert("convert", tmp_path / "in.pt", tmp_path / "out", "--to", "safetensors")["problems"]
    assert "one list" in warning["message"]
    assert set(tools.described(tmp_path / "out")) == {"0", "1.x"}


def test_torch_maps_it(tmp_path):
    tools.convert("convert", source_of("dcp/shapes"), tmp_path / "out.pt", "--to", "torch_save")
    mapped = torch.load(tmp_path / "out.pt", weights_only=True, mmap=True)
    for key, tensor in torch.load(tmp_path / "out.pt", weights_only=True).items():
        assert torch.equal(mapped[key], tensor), key


def test_transformers_loads_it_as_pytorch_model_bin(tmp_path):
    source = source_of("hf/llama-untied-bf16")
    folder = tmp_path / "repository"
    folder.mkdir()
    tools.convert("convert", source, folder / "pytorch_model.bin", "--to", "torch_save")
    (folder / "config.json").write_bytes((source / "config.json").read_bytes())
    ours = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto").state_dict()
    theirs = transformers.AutoModelForCausalLM.from_pretrained(source, dtype="auto").state_dict()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_a_flipped_bit_is_found_by_zipfile_and_by_us(tmp_path):
    tools.convert("convert", source_of("dcp/shapes"), tmp_path / "out.pt", "--to", "torch_save")
    key, chunk = next((c["key"], c) for c in tools.inspect("shards", tmp_path / "out.pt")["chunks"] if c["length"] > 8)
    content = bytearray((tmp_path / "out.pt").read_bytes())
    content[chunk["offset"] + 5] ^= 4
    (tmp_path / "out.pt").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "out.pt") as archive:
        assert archive.testzip() is not None
    code, document, _ = tools.run("ckpt-inspect", "verify", tmp_path / "out.pt", "--json")
    assert code == 1 and [problem["tensor"] for problem in document["problems"]] == [key]


def test_memory_is_bounded(tmp_path):
    torch.save({f"w{i}": torch.randn(4096, 4096) for i in range(8)}, tmp_path / "in.pt")
    report = tools.convert("convert", tmp_path / "in.pt", tmp_path / "out.pt", "--to", "torch_save", "--memory-budget", "16MiB")
    if not tools.are_sanitized():
        assert report["peak_rss"] < 200 << 20
    again = torch.load(tmp_path / "out.pt", weights_only=True, mmap=True)
    for key, tensor in torch.load(tmp_path / "in.pt", weights_only=True, mmap=True).items():
        assert torch.equal(again[key], tensor)


@pytest.mark.parametrize("option", [("--compress", "zstd"), ("--files", "2"), ("--max-shard-size", "1MiB"), ("--parity", "2")])
def test_what_one_file_cannot_be_is_refused(option, tmp_path):
    code, document, _ = tools.run("ckpt-convert", "convert", source_of("dcp/shapes"), tmp_path / "out.pt", "--to", "torch_save", *option,
                                  "--json")
    assert code == 2 and document["errors"][0]["kind"] == "usage" and not (tmp_path / "out.pt").exists()
