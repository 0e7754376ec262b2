"""Parameter groups keep their order, because a scheduler of torch knows them by it, and their frozen parameters."""
import pytest
import torch
import torch.distributed.checkpoint as dcp
import transformers
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict

import tools

WAYS = {"fsdp_dtensor": ["--to", "fsdp_dtensor"], "hdf5": ["--to", "hdf5"], "torch_save": ["--to", "torch_save", "--naming", "fsdp2"]}


class Loop:
    """A model whose matrices and vectors have rates of their own, each of which its scheduler halves with every update."""

    def __init__(self, reverse=False, frozen=(), more_groups=()):
        torch.manual_seed(1)
        self.model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            num_hidden_layers=2, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, vocab_size=64,
            max_position_embeddings=32, tie_word_embeddings=False))
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name not in frozen)
        groups = [{"params": [p for p in self.model.parameters() if p.ndim > 1], "lr": 1e-3, "weight_decay": 0.1},
                  {"params": [p for p in self.model.parameters() if p.ndim < 2], "lr": 1e-2, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW([*(groups[::-1] if reverse else groups), *more_groups])
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 0.5**step)

    def update(self):
        tokens = torch.arange(32).reshape(2, 16) % 64
        self.model(input_ids=tokens, labels=tokens).loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        return [group["lr"] for group in self.optimizer.param_groups]

    def state(self, options):
        model, optimizer = get_state_dict(self.model, self.optimizer, options=options)
        return {"model": model, "optim": optimizer, "lr_scheduler": self.scheduler.state_dict()}

    def save(self, folder, options):
        dcp.save(self.state(options), checkpoint_id=folder, no_dist=True)
        self.model.config.save_pretrained(folder)

    def load(self, folder, options):
        state = self.state(options)
        dcp.load(state, checkpoint_id=folder, no_dist=True)
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"], options=options)
        self.scheduler.load_state_dict(state["lr_scheduler"])


def carried(source, way, root, *options):
    """The run, through another format and back."""
    there = root / ("there" + {"hdf5": ".h5", "torch_save": ".pt"}.get(way, ""))
    tools.convert("convert", source, there, *WAYS[way])
    tools.convert("convert", there, root / "back", "--to", "dcp", "--naming", "fsdp2", "--hf-assets", source, *options)
    return root / "back"


# A state dict without groups does not say their order.
@pytest.mark.parametrize("is_flat, reverse", [(False, False), (False, True), (True, False)],
                         ids=["nested", "nested, vectors first", "flattened"])
@pytest.mark.parametrize("way", WAYS)
def test_each_group_goes_on_at_its_own_rate(way, is_flat, reverse, tmp_path):
    options = StateDictOptions(flatten_optimizer_state_dict=is_flat)
    loop = Loop(reverse)
    loop.update()
    loop.save(tmp_path / "theirs", options)
    form = ["--optimizer-state-dict", "flattened"] if is_flat else []
    other = Loop(reverse)
    other.load(carried(tmp_path / "theirs", way, tmp_path, *form), options)
    assert other.update() == loop.update()
    for name, parameter in loop.model.state_dict().items():
        assert torch.equal(other.model.state_dict()[name], parameter), name


@pytest.mark.parametrize("is_flat", [False, True], ids=["nested", "flattened"])
def test_frozen_parameters_keep_their_settings(is_flat, tmp_path):
    frozen = ["model.embed_tokens.weight", *(n for n, p in Loop().model.named_parameters() if p.ndim < 2)]  # a whole group of them
    options = StateDictOptions(flatten_optimizer_state_dict=is_flat)
    loop = Loop(frozen=frozen)
    loop.update()
    loop.save(tmp_path / "theirs", options)
    form = ["--optimizer-state-dict", "flattened"] if is_flat else []
    assert tools.convert("convert", tmp_path / "theirs", tmp_path / "ours", "--to", "dcp", "--naming", "fsdp2", *form)["dropped"] == []
    other = Loop(frozen=frozen)
    other.load(tmp_path / "ours", options)
    assert other.update() == loop.update()
    report = tools.convert("convert", tmp_path / "theirs", tmp_path / "there", "--to", "fsdp_dtensor")
    assert {entry["key"] for entry in report["dropped"] if "frozen" in entry["why"]} == {
        f"settings of the optimizer for {name}" for name in frozen}


def test_a_group_without_parameters_is_listed(tmp_path):
    loop = Loop(more_groups=[{"params": [], "lr": 5e-4}])
    loop.update()
    loop.save(tmp_path / "theirs", StateDictOptions())
    report = tools.convert("convert", tmp_path / "theirs", tmp_path / "there", "--to", "fsdp_dtensor")
    assert [entry["key"] for entry in report["dropped"] if "group" in entry["key"]] == ["group 2 of the optimizer"]
    tools.convert("convert", tmp_path / "theirs", tmp_path / "kept", "--to", "dcp", "--naming", "fsdp2")
    other = Loop(more_groups=[{"params": [], "lr": 5e-4}])
    other.load(tmp_path / "kept", StateDictOptions())
    assert other.update() == loop.update()


def test_a_programs_objects_come_back_from_texts_and_where_they_stood(tmp_path):
    loop = Loop()
    loop.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(loop.optimizer, T_max=10)
    loop.update()
    dcp.save(loop.state(StateDictOptions()) | {"dataloader": {"dp_rank_0": {"position": 7}}}, checkpoint_id=tmp_path / "theirs", no_dist=True)
    loop.model.config.save_pretrained(tmp_path / "theirs")
    back = carried(tmp_path / "theirs", "hdf5", tmp_path)
    assert tools.inspect("show", back, "lr_scheduler.T_max")["value"] == 10
    tools.convert("convert", back, tmp_path / "one.pt", "--to", "torch_save", "--naming", "fsdp2")
    found = torch.load(tmp_path / "one.pt", weights_only=False)
    assert found["dataloader"] == {"dp_rank_0": {"position": 7}} and found["lr_scheduler"]["T_max"] == 10


def test_what_a_trainer_draws_next_is_there_for_megatron(tmp_path):
    """Megatron-FSDP asks for the states of its generators when it resumes."""
    loop = Loop()
    loop.update()
    loop.save(tmp_path / "theirs", StateDictOptions())
    tools.convert("convert", tmp_path / "theirs", tmp_path / "there", "--to", "fsdp_dtensor")
    assert {key.removeprefix("rng_state.(0, 0).0.") for key in tools.described(tmp_path / "there") if key.startswith("rng_state.")} == {
        "torch_rng_state", "cuda_rng_state", "rng_tracker_states.data-parallel-rng", "rng_tracker_states.expert-parallel-rng",
        "rng_tracker_states.model-parallel-rng"}
