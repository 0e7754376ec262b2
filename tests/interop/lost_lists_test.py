"""Lists that lose an entry, or hold objects alone, on the way to a DCP: torch loads all the rest of it, and a scheduler loses no tensor."""
import random

import numpy
import pytest
import torch
import torch.distributed.checkpoint as dcp
import transformers
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import tools

SAID = "torch finds no list again"


def nested(checkpoint, tmp_path):
    """The object that both versions of torch make of a whole checkpoint."""
    dcp_to_torch_save(checkpoint, tmp_path / "nested.pt")
    tools.peer("2.4.1", "dcp_load.py", "torch_save", checkpoint, tmp_path / "nested-2.4.pt")
    return torch.load(tmp_path / "nested.pt", weights_only=False)


def convert(state, tmp_path, *options):
    """The nested object of the state in a DCP, and whether a warning told of lists."""
    torch.save(state, tmp_path / "state.pt")
    report = tools.convert("convert", tmp_path / "state.pt", tmp_path / "dcp", "--to", "dcp", *options)
    return nested(tmp_path / "dcp", tmp_path), any(SAID in problem["message"] for problem in report["problems"])


def test_lists_that_are_whole_stay_lists(tmp_path):
    state = {"l": [1, [torch.ones(1), {"y": None}], {"x": 7}], "objects": [1, [2]]}
    assert convert(state, tmp_path) == (state, False)


def test_a_list_of_tensors_that_are_objects_to_us(tmp_path):
    torch.save({"l": [torch.eye(2).to_sparse(), 7], "w": torch.ones(2)}, tmp_path / "state.pt")
    report = tools.convert("convert", tmp_path / "state.pt", tmp_path / "dcp", "--to", "dcp")
    dcp_to_torch_save(tmp_path / "dcp", tmp_path / "nested.pt")  # the peer has no digest of a sparse tensor
    found = torch.load(tmp_path / "nested.pt", weights_only=False)
    assert any(SAID in problem["message"] for problem in report["problems"])
    assert set(found) == {"l", "w"} and set(found["l"]) == {"0", "1"}
    assert torch.equal(found["l"]["0"].to_dense(), torch.eye(2)) and found["l"]["1"] == 7


@pytest.mark.parametrize("options", [["--drop", "nest.l.1"], ["--rename", "nest.l.1=x"], ["--only", "nest.l.0", "--only", "nest.l.2"]],
                         ids=lambda options: options[0])
@pytest.mark.parametrize("source", ["torch_save", "dcp"])
def test_a_list_that_lost_a_tensor(source, options, tmp_path):
    state = {"nest": {"l": [torch.zeros(2), torch.ones(2), torch.full((2,), 2.0)]}}
    if source == "torch_save":
        found, is_told = convert(state, tmp_path, *options)
    else:
        dcp.save(state, checkpoint_id=tmp_path / "theirs", no_dist=True)
        report = tools.convert("convert", tmp_path / "theirs", tmp_path / "dcp", "--to", "dcp", *options)
        found, is_told = nested(tmp_path / "dcp", tmp_path), any(SAID in problem["message"] for problem in report["problems"])
    assert is_told
    expected = {"0": 0.0, "2": 2.0}
    assert {key: value[0].item() for key, value in found["nest"]["l"].items()} == expected
    assert set(found) == ({"nest", "x"} if options[0] == "--rename" else {"nest"})


def test_a_list_that_lost_an_object_in_another_format(tmp_path):
    """HDF5 has only the digest of numpy's array."""
    state = {"model": {"w": torch.ones(2)}, "rng": [random.getstate(), numpy.random.get_state(), torch.get_rng_state()]}
    torch.save(state, tmp_path / "state.pt")
    tools.convert("convert", tmp_path / "state.pt", tmp_path / "state.h5", "--to", "hdf5")
    tools.convert("convert", tmp_path / "state.h5", tmp_path / "dcp", "--to", "dcp")
    found = nested(tmp_path / "dcp", tmp_path)
    assert set(found["rng"]) == {"0", "2"} and found["rng"]["0"] == state["rng"][0]
    assert torch.equal(found["rng"]["2"], state["rng"][2])


class Curve:
    """A curve with a state, which LambdaLR stores."""

    def __init__(self):
        self.warmup, self.scale = 3, torch.tensor([1.0, 0.5])

    def __call__(self, step):
        return self.scale[step % 2].item()


class Loop:
    def __init__(self):
        torch.manual_seed(1)
        self.model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            num_hidden_layers=1, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, vocab_size=64,
            max_position_embeddings=32, tie_word_embeddings=False))
        matrices, vectors = ([p for p in self.model.parameters() if (p.ndim > 1) == is_matrix] for is_matrix in (True, False))
        self.optimizer = torch.optim.AdamW([{"params": matrices, "lr": torch.tensor(1e-3)}, {"params": vectors, "lr": 1e-2}], foreach=False)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, Curve())

    def update(self):
        tokens = torch.arange(32).reshape(2, 16) % 64
        loss = self.model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        return loss.item()

    def state(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optim": optimizer, "lr_scheduler": self.scheduler.state_dict()}


@pytest.mark.parametrize("way", [["dcp"], ["torch_save"], ["hdf5", "dcp"], ["torch_save", "dcp"]], ids="-".join)
def test_tensors_of_a_scheduler_go_along_with_it(way, tmp_path):
    loop = Loop()
    loop.update()
    dcp.save(loop.state(), checkpoint_id=tmp_path / "theirs", no_dist=True)
    loop.model.config.save_pretrained(tmp_path / "theirs")
    source = tmp_path / "theirs"
    for number, container in enumerate(way):
        target = tmp_path / (str(number) + {"dcp": "", "hdf5": ".h5", "torch_save": ".pt"}[container])
        report = tools.convert("convert", source, target, "--to", container, "--naming", "fsdp2", "--hf-assets", tmp_path / "theirs")
        assert not [entry for entry in report["dropped"] if entry["key"].startswith("lr_scheduler")]
        assert not any(SAID in problem["message"] for problem in report["problems"])
        source = target
    found = torch.load(source, weights_only=True) if source.suffix else nested(source, tmp_path)
    kept, theirs = found["lr_scheduler"], loop.state()["lr_scheduler"]
    for name in ("base_lrs", "_last_lr"):
        assert [torch.is_tensor(rate) for rate in kept[name]] == [True, False]
        assert kept[name] == theirs[name]
    assert torch.equal(kept["lr_lambdas"][0]["scale"], torch.tensor([1.0, 0.5]))

    other = Loop()
    other.update()
    other.update()
    set_state_dict(other.model, other.optimizer, model_state_dict=found["model"], optim_state_dict=found["optim"])
    other.scheduler.load_state_dict(kept)
    assert [other.update() for _ in range(3)] == [loop.update() for _ in range(3)]
