"""Directories of Megatron's ranks: arguments that lie, ranks that are missing or too many, parts that do not fit."""
import dataclasses

import pickle_bytes as p
import zip_bytes as z
from corpus_case import Group, Outcome, damaged, error, refused, warning
from verl_cases import dtensor

group = Group("mp_rank")
CASES = group.cases

NORM, ROWS, COLUMNS = "decoder.layers.0.input_layernorm.weight", "embedding.word_embeddings.weight", "decoder.layers.0.self_attention.linear_proj.weight"
ARGS = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 1, "num_layers": 1, "swiglu": True, "untie_embeddings_and_output_weights": True}
RANKS = ("mp_rank_00", "mp_rank_01")


def model(**changes):
    """Tensors of one rank: name -> shape, or a value of the pickle."""
    return {NORM: (4,), ROWS: (2, 4), COLUMNS: (4, 2)} | changes.get("tensors", {})


def rank_file(args, tensors, **members):
    storages, pickled = {}, {}
    for name, shape in tensors.items():
        if not isinstance(shape, tuple):
            pickled[name] = shape
            continue
        elements = 1
        for extent in shape:
            elements *= extent
        key = str(len(storages))
        storages[key] = members.get("element", b"\0\0\0\0") * elements
        pickled[name] = p.tensor(shape, key, elements=elements)
    namespace = p.Inst(p.G("argparse", "Namespace"), args) if isinstance(args, dict) else args
    value = {"args": namespace, "checkpoint_version": 3.0, "iteration": 7, "model": pickled} | members.get("members", {})
    return z.torch_file(p.dumps({k: v for k, v in value.items() if v != "absent"}), storages)


def job(args=None, ranks=RANKS, tensors=None, last=None, **members):
    """`tensors`: changes of every rank's; `last`: of the last rank's alone."""
    def make(folder):
        for name in ranks:
            own = (tensors or {}) | ((last or {}) if name == ranks[-1] else {})
            (folder / name).mkdir()
            arguments = args if args is not None and not isinstance(args, dict) else ARGS | (args or {})
            data = rank_file(arguments, {k: v for k, v in model(tensors=own).items() if v != "absent"}, **members)
            (folder / name / "model_optim_rng.pt").write_bytes(data)
        return folder
    return make


def edited(change, **options):
    """A job whose folder `change` alters afterwards."""
    def make(folder):
        job(**options)(folder)
        change(folder)
        return folder
    return make


group.add("whole", "no attack: the job that the others change", job(), Outcome(0, 0, 0))

# --- How many ranks there are.

for name, (args, kind, message) in {
        "ranks-zero": ({"tensor_model_parallel_size": 0}, "bad_metadata", "impossible number of ranks"),
        "ranks-negative": ({"tensor_model_parallel_size": -2}, "bad_metadata", "impossible number of ranks"),
        "ranks-huge": ({"tensor_model_parallel_size": 1 << 62}, "missing", "do not say by how many ranks"),
        "ranks-product": ({"tensor_model_parallel_size": 1 << 16, "pipeline_model_parallel_size": 1 << 16}, "bad_metadata", "impossible number of ranks"),
        "ranks-more": ({"tensor_model_parallel_size": 3}, "missing_file", "directories of ranks are missing"),
        "ranks-fewer": ({"tensor_model_parallel_size": 1}, "bad_metadata", "belongs to no rank"),
        "ranks-text": ({"tensor_model_parallel_size": "2"}, "missing", "do not say by how many ranks"),
        "ranks-fraction": ({"tensor_model_parallel_size": 2.5}, "missing", "do not say by how many ranks"),
        "ranks-past-64-bits": ({"tensor_model_parallel_size": 1 << 65}, "missing", "do not say by how many ranks"),
        "layers-other": ({"num_layers": 2}, "bad_metadata", "another number of layers"),
        "layers-negative": ({"num_layers": -1}, "bad_metadata", ""),
        "experts-negative": ({"num_experts": -8}, "bad_metadata", "cannot share so many experts")}.items():
    group.add(name, f"arguments that lie: {name}", job(args), refused(kind, message))
for name, experts in {"experts-no-multiple": 3, "experts-none": 0, "experts-least": -1 << 63}.items():
    group.add(name, f"two ranks that share {experts} experts", job({"tensor_model_parallel_size": 1, "expert_model_parallel_size": 2, "num_experts": experts}, ranks=("mp_rank_00_000", "mp_rank_00_001")),
              refused("bad_metadata", "cannot share so many experts"))
group.add("rank-twice", "a directory of the same rank under another name", edited(lambda f: (f / "mp_rank_1").mkdir()), refused("bad_metadata", "two directories belong to one rank"))
group.add("rank-other", "a directory of a rank that the job lacks", edited(lambda f: (f / "mp_rank_07").mkdir()), refused("bad_metadata", "belongs to no rank"))
group.add("rank-past-64-bits", "a rank past 64 bits", edited(lambda f: (f / f"mp_rank_{1 << 64}").mkdir()), Outcome(0, 0, 0))
group.add("rank-empty", "a rank without its file", edited(lambda f: (f / "mp_rank_01/model_optim_rng.pt").unlink()), refused("missing_file", "does not hold its model"))
group.add("rank-folder", "a rank whose file is a folder", edited(lambda f: ((f / "mp_rank_01/model_optim_rng.pt").unlink(), (f / "mp_rank_01/model_optim_rng.pt").mkdir())),
          refused("missing_file", "does not hold its model"))
group.add("rank-garbage", "a rank whose file is no torch.save file", edited(lambda f: (f / "mp_rank_01/model_optim_rng.pt").write_bytes(b"\0" * 64)), refused("unsupported", ""))

# --- Arguments and the model as something else.

SYSTEM = p.Call(p.G("os", "system"), ("touch ckptkit-was-executed",))


def called(key):
    return warning("unsafe_pickle", "calls os.system", tensor=key)


# Each object says what its pickle calls.
CALLED = Outcome(0, 0, 0, tuple(called(key) for key in ("args", "checkpoint_version", "iteration")))
group.add("args-absent", "no arguments", job(members={"args": "absent"}), refused("missing", ""))
group.add("args-list", "arguments that are a list", job([1, 2]), refused("bad_metadata", ""))
group.add("args-call", "arguments that are a call", job(SYSTEM), refused("missing", "do not say by how many ranks"))
group.add("version-old", "a checkpoint of version 2", job(members={"checkpoint_version": 2.0}), refused("unsupported", ""))
group.add("version-nan", "a checkpoint of version NaN", job(members={"checkpoint_version": float("nan")}), refused("bad_metadata", ""))
group.add("model-list", "a model that is a list", job(members={"model": [1]}), refused("bad_metadata", "another number of layers"))
group.add("tensor-call", "a tensor that is a call", job(tensors={COLUMNS: SYSTEM}), CALLED)
group.add("object-call", "a member that is a call", job(members={"extra": SYSTEM}), dataclasses.replace(CALLED, findings=CALLED.findings + (called("extra"),)))

# --- Files of a distributed optimizer.

MOMENTS = {"optimizer": {"param_groups": []}}
BUFFERS = z.torch_file(p.dumps({}))
for name, (data, kind, message) in {"buffers-garbage": (b"\0" * 64, "unsupported", "not a torch.save file"),
                                    "buffers-behind": (BUFFERS + b"\0" * 100, "unsupported", "bytes follow the end of the zip"),
                                    "buffers-cut": (BUFFERS[:-1], "truncated", "")}.items():
    group.add(name, f"a rank's buffers: {name}",
              edited(lambda f, data=data: [(f / rank / "distrib_optim.pt").write_bytes(data if rank == RANKS[1] else BUFFERS) for rank in RANKS], members=MOMENTS),
              damaged(kind, message, digest=0, also=(warning("leftover", ""),)))

# --- Parts.

MODEL = "model."


def uncovered(name):
    return error("coverage", "", tensor=MODEL + name)


group.add("part-missing", "a rank without its part", job(last={COLUMNS: "absent"}),
          damaged("missing", "a tensor-parallel rank has no part", tensor=MODEL + COLUMNS, also=(uncovered(COLUMNS),)))
group.add("part-other-shape", "parts of two shapes", job(last={COLUMNS: (4, 3)}),
          damaged("shape_mismatch", "ranks have different parts", tensor=MODEL + COLUMNS, also=(uncovered(COLUMNS),)))
group.add("part-no-dims", "parts of no dim", job(tensors={COLUMNS: ()}),
          damaged("shape_mismatch", "", tensor=MODEL + COLUMNS, also=(uncovered(COLUMNS),)))
group.add("part-overflow", "parts whose whole overflows", job(tensors={ROWS: p.tensor((1 << 62, 1), "0", elements=4, stride=(0, 0))}),
          refused("resource", "overflows", tensor=MODEL + ROWS, file=RANKS[0], also=(error("resource", "overflows", tensor=MODEL + ROWS, file=RANKS[1]),)))
group.add("part-of-dtensor", "a rank's part of a tensor that data-parallel ranks divide",
          job(tensors={ROWS: dtensor((4, 4), p.tensor((2, 4), "1", elements=8), [0])}),
          refused("unsupported", "data-parallel ranks divide the tensor", tensor=MODEL + ROWS, file=RANKS[0],
                  also=(error("unsupported", "data-parallel ranks divide the tensor", tensor=MODEL + ROWS, file=RANKS[1]),)))
group.add("name-unknown", "a name that nobody knows", job(tensors={"decoder.layers.0.ghost.weight": (4,)}),
          damaged("unsupported", "how tensor-parallel ranks divide", tensor=MODEL + "decoder.layers.0.ghost.weight", also=(uncovered("decoder.layers.0.ghost.weight"),)))
group.add("layer-gap", "a layer behind a gap", job(tensors={"decoder.layers.5.input_layernorm.weight": (4,)}), refused("bad_metadata", "another number of layers"))
for name, layer in {"layer-huge": (1 << 63) - 1, "layer-past-64-bits": 1 << 70}.items():
    group.add(name, f"a layer of the number {layer}", job(tensors={f"decoder.layers.{layer}.input_layernorm.weight": (4,)}),
              refused("bad_metadata", "an absurd number", file=RANKS[0], also=(error("bad_metadata", "an absurd number", file=RANKS[1]),)))
