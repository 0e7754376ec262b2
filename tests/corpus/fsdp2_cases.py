"""Runs of FSDP2 whose model is whole and whose optimizer lies: a conversion of the run reads it."""
import json
import struct

import dcp_bytes as d
import pickle_bytes as p
import zip_bytes as z
from corpus_case import Group, Outcome, error

group = Group("fsdp2")
CASES = group.cases

CONFIG = {"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 4, "num_attention_heads": 2, "vocab_size": 4, "intermediate_size": 4,
          "rms_norm_eps": 1e-6, "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "tie_word_embeddings": True}
LAYER = "model.layers.0."
WEIGHTS = {"model.embed_tokens.weight": (4, 4), "model.norm.weight": (4,), LAYER + "input_layernorm.weight": (4,),
           LAYER + "post_attention_layernorm.weight": (4,), **{f"{LAYER}self_attn.{n}_proj.weight": (4, 4) for n in "qkvo"},
           **{f"{LAYER}mlp.{n}_proj.weight": (4, 4) for n in ("gate", "up", "down")}}
NAME = "model.norm.weight"


def tensor(shape, data=None):
    """Description, item, and the offset of the only chunk."""
    elements = 1
    for extent in shape:
        elements *= extent
    data = b"\0" * 4 * elements if data is None else data
    return d.described(shape), d.item(shape, elements, data=data), (0,) * len(shape)


def number(value):
    return tensor((), struct.pack("<f", value))


def thing(value):
    """An object."""
    return p.Inst(p.G(d.METADATA, "BytesStorageMetadata")), z.torch_file(value if isinstance(value, bytes) else p.dumps(value), {}), None


def good():
    entries = {f"model.{name}": tensor(shape) for name, shape in WEIGHTS.items()}
    for name, shape in WEIGHTS.items():
        entries |= {f"optim.state.{name}.{moment}": tensor(shape) for moment in ("exp_avg", "exp_avg_sq")}
        entries[f"optim.state.{name}.step"] = number(2.0)
    group_of_all = {"lr": 0.5, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False, "params": list(WEIGHTS)}
    return entries | {f"optim.param_groups.0.{field}": thing(value) for field, value in group_of_all.items()}


def run(changes, without=()):
    """A case's files: the good run with other entries."""
    def make(folder):
        entries = {key: entry for key, entry in (good() | changes).items() if key not in without}
        data, described, stored = b"", {}, []
        for key, (description, item, offset) in entries.items():
            described[key] = description
            stored.append((d.index(key, offset), d.stored(len(data), len(item))))
            data += item
        d.write(d.root(described, stored), {d.FILE: data})(folder)
        (folder / "config.json").write_text(json.dumps(CONFIG))
        return folder
    return make


def add(name, attack, changes, kind, message, tensor=None, without=()):
    group.add(name, attack, run(changes, without), Outcome(3, 3, 3, (error(kind, message, tensor=tensor),)),
              command=("ckpt-convert", "convert", "@", "out", "--to", "dcp", "--naming", "fsdp2", "--plan"))


group.add("whole", "no attack: the run that the others change", run({}), Outcome(0, 0, 0),
          command=("ckpt-convert", "convert", "@", "out", "--to", "dcp", "--naming", "fsdp2", "--plan"))

STEP, GROUP = f"optim.state.{NAME}.step", "optim.param_groups.0."
for name, value in {"nan": float("nan"), "infinite": float("inf"), "negative": -1.0, "half": 1.5, "huge": 3e38}.items():
    add(f"step-{name}", f"a parameter was updated so often: {name}", {STEP: number(value)}, "bad_metadata", "a count is not a whole number", STEP)
add("step-other", "a parameter was updated more often than the others", {STEP: number(7.0)}, "unsupported", "updated unequally often")
add("step-many", "a count of a million numbers", {STEP: tensor((1000, 1000))}, "bad_metadata", "a stored number does not have exactly one element", STEP)
add("step-none", "a count of no number", {STEP: tensor((0,))}, "bad_metadata", "a stored number does not have exactly one element", STEP)
add("step-text", "a count that is an object", {STEP: thing("2")}, "bad_metadata", "how often a parameter was updated is no number", STEP)
add("moment-missing", "a weight without a moment", {}, "missing", "no moment of the optimizer", f"optim.state.{NAME}.exp_avg", (f"optim.state.{NAME}.exp_avg",))
add("moment-shape", "a moment of another shape", {f"optim.state.{NAME}.exp_avg": tensor((5,))}, "shape_mismatch", "")
add("moment-of-nobody", "a moment of a weight that the model lacks",
    {f"optim.state.ghost.{m}": tensor((4,)) for m in ("exp_avg", "exp_avg_sq")} | {"optim.state.ghost.step": number(2.0)}, "unmapped", "")
add("two-optimizers", "a second optimizer beside the first", {f"optimizer.state.{NAME}.exp_avg": tensor((4,))}, "unsupported", "several optimizers")
add("state-other", "state that no known optimizer keeps", {f"optim.state.{NAME}.preconditioner": tensor((4, 4))}, "unsupported", "neither Adam nor SGD")
add("groups-none", "no parameter groups", {}, "missing", "nothing says the settings of the optimizer",
    without=tuple(GROUP + f for f in ("lr", "betas", "eps", "weight_decay", "amsgrad", "params")))
add("group-numbers", "parameters by number", {GROUP + "params": thing(list(range(11)))}, "bad_metadata", "", GROUP + "params")
add("group-twice", "a parameter twice", {GROUP + "params": thing(list(WEIGHTS) + [NAME])}, "bad_metadata", "a parameter is in two groups", GROUP + "params")
add("group-without", "a trained weight in no group", {GROUP + "params": thing([n for n in WEIGHTS if n != NAME])}, "missing", "no group of the optimizer has a trained weight", NAME)
add("group-dict", "names that are a dict", {GROUP + "params": thing({"a": 1})}, "bad_metadata", "", GROUP + "params")
add("group-call", "names that a call makes", {GROUP + "params": thing(p.Call(p.G("os", "system"), ("touch ckptkit-was-executed",)))}, "bad_metadata", "", GROUP + "params")
add("betas-one", "one beta", {GROUP + "betas": thing((0.9,))}, "bad_metadata", "not a pair of numbers", GROUP + "betas")
add("betas-text", "betas that are a text", {GROUP + "betas": thing("0.9")}, "bad_metadata", "not a pair of numbers", GROUP + "betas")
add("betas-object", "a beta that is a dict", {GROUP + "betas": thing((0.9, {"a": 1}))}, "unsupported", "a setting of the optimizer is not a plain value", GROUP + "betas")
add("betas-deep", "betas in ten thousand tuples", {GROUP + "betas": thing(b"\x80\x02" + b"(" * 10000 + b"t" * 10000 + b".")}, "resource", "")
add("lr-text", "a rate that is text", {GROUP + "lr": thing("0.5")}, "bad_metadata", "", GROUP + "lr")
add("lr-tensor-many", "a rate of many numbers", {GROUP + "lr": tensor((9,))}, "bad_metadata", "a stored number does not have exactly one element", GROUP + "lr")
add("maximize", "an optimizer that goes the other way", {GROUP + "maximize": thing(True)}, "unsupported", "the optimizer maximizes", GROUP + "maximize")
add("cautious", "an Adam that leaves out half of the updates", {GROUP + "caution": thing(True)}, "unsupported", "a setting that Adam does not have", GROUP + "caution")
add("momentum", "a momentum beside Adam's moments", {GROUP + "momentum": thing(0.9)}, "unsupported", "a setting that SGD does not have", GROUP + "betas")
add("args-list", "arguments of a run that are a list", {"run.args": thing([1])}, "bad_metadata", "wrong JSON value")
add("args-alone", "arguments of a run without its progress", {"run.args": thing({"seed": 1})}, "missing", "", "run.opt_param_scheduler.num_steps")
