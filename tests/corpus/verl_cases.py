"""Files of verl's ranks: places in a mesh, placements, and parts that do not fit; and names of files."""
import pickle_bytes as p
import zip_bytes as z
from corpus_case import Group, Outcome, damaged, error, refused, warned, warning

group = Group("verl")
CASES = group.cases

SYSTEM = p.Call(p.G("os", "system"), ("touch ckptkit-was-executed",))
HUGE = (1 << 63) - 1


def shard(dim=0, name="Shard"):
    return p.Inst(p.G("torch.distributed.tensor.placement_types", name), {"dim": dim})


REPLICATE = p.Inst(p.G("torch.distributed.tensor.placement_types", "Replicate"), {})


def dtensor(size, local, place, placements=None):
    """What torch stores of a DTensor; `local`: the rank's own tensor."""
    mesh = p.Inst(p.G("torch.distributed.device_mesh", "DeviceMesh"), {"_coordinate_on_dim": place})
    spec = p.Inst(p.G("torch.distributed.tensor._dtensor_spec", "DTensorSpec"), {"mesh": mesh, "placements": (shard(),) if placements is None else placements})
    return p.Call(p.G("torch._tensor", "_rebuild_from_type_v2"),
                  (p.G("torch._utils", "_rebuild_wrapper_subclass"), p.G("torch.distributed.tensor", "DTensor"),
                   (p.G("torch.distributed.tensor", "DTensor"), p.G("torch", "float32"), size, p.strides_of(size) if isinstance(size, tuple) else size),
                   {"_local_tensor": local, "_spec": spec}))


def part(rank, **changes):
    """Two of four rows, a rank each."""
    value = {"size": (4, 2), "local": p.tensor((2, 2)), "place": [rank], "placements": None} | changes
    return dtensor(**value)


def name_of(rank, world=2, state="model"):
    return f"{state}_world_size_{world}_rank_{rank}.pt"


def job(values=None, files=None):
    """Two ranks. `values`: what their files hold; `files`: name -> bytes, None (a folder) or "absent"."""
    def make(folder):
        held = values or [{"w": part(0)}, {"w": part(1)}]
        content = {name_of(rank): z.torch_file(p.dumps(value), {"0": b"\0" * 16}) for rank, value in enumerate(held)}
        for name, data in (content | (files or {})).items():
            if data is None:
                (folder / name).mkdir()
            elif data != "absent":
                (folder / name).write_bytes(data)
        return folder
    return make


def parts(first, second=None):
    """Both ranks lie in the same way, unless `second` says otherwise."""
    return job([{"w": part(0, **first)}, {"w": part(1, **(first if second is None else second))}])


UNCOVERED = error("coverage", "", tensor="w")


def bad(kind, message):
    return damaged(kind, message, tensor="w", also=(UNCOVERED,))


def bad_twice(kind, message):
    """Refused for what either rank holds."""
    return refused(kind, message, file=name_of(0), also=(error(kind, message, file=name_of(1)),))


group.add("whole", "no attack: the ranks that the others change", job(), Outcome(0, 0, 0))

# --- Places.

group.add("place-same", "two ranks at one place", parts({}, {"place": [0]}), bad("shape_mismatch", "another size than its place"))
group.add("place-far", "a rank at a place that no rank of so few has", parts({}, {"place": [1 << 40]}), bad("bad_metadata", "outside any mesh"))
group.add("place-overflow", "a rank at the place 2^63-1, whose rows wrap", parts({"place": [HUGE], "local": p.tensor((4, 2), stride=(0, 0))}), bad("bad_metadata", "outside any mesh"))
group.add("place-negative", "a rank at the place -1", parts({}, {"place": [-1]}), refused("bad_item", "not a list of positions"))
group.add("place-text", "a place that is text", parts({}, {"place": ["0"]}), refused("bad_item", "not a list of positions"))
group.add("place-none", "no place", parts({}, {"place": []}), refused("bad_item", "does not match the placements"))
group.add("place-two", "a place in two dims under one placement", parts({}, {"place": [0, 0]}), refused("bad_item", "does not match the placements"))
group.add("place-call", "a place that is a call", parts({}, {"place": SYSTEM}), refused("bad_item", ""))

# --- Placements.

for name, dim in {"dim-past": 2, "dim-below": -3, "dim-huge": HUGE, "dim-least": -1 << 63}.items():
    group.add(name, f"rows cut along the dim {dim}", parts({"placements": (shard(dim),)}), bad("bad_metadata", "cuts a dim that the tensor lacks"))
group.add("dim-text", "a dim that is text", parts({"placements": (shard("0"),)}), bad_twice("unsupported", "a placement of a distributed tensor is not read"))
group.add("partial", "sums that nobody added up", parts({"placements": (shard(name="Partial"),)}), bad_twice("unsupported", "a placement of a distributed tensor is not read"))
group.add("placements-call", "placements that are a call", parts({"placements": SYSTEM}), bad_twice("bad_item", ""))
group.add("placements-many", "a thousand placements", parts({"placements": (shard(),) * 1000, "place": [0] * 1000}), bad_twice("bad_item", "more placements than a mesh dims"))
group.add("described-otherwise", "ranks that describe a tensor differently", parts({}, {"placements": (shard(1),)}), bad("bad_metadata", "describe a tensor differently"))

# --- Sizes and parts.

group.add("size-other", "a tensor larger than its parts", parts({"size": (400, 2)}), bad("shape_mismatch", "another size than its place"))
group.add("size-overflow", "a tensor of 2^124 elements", parts({"size": (1 << 62, 1 << 62)}), bad("resource", "overflow"))
group.add("size-negative", "a tensor of -4 rows", parts({"size": (-4, 2)}), bad_twice("bad_item", ""))
group.add("size-text", "a size that is text", parts({"size": "4"}), bad_twice("bad_item", ""))
group.add("local-absent", "no part", parts({"local": None}), bad_twice("unsupported", "not a plain array"))
group.add("local-call", "a part that is a call", parts({"local": SYSTEM}), bad_twice("unsupported", "not a plain array"))
group.add("local-past-storage", "a part past the end of its storage", parts({"local": p.tensor((2, 2), elements=4, offset=1)}), bad_twice("size_mismatch", "reaches outside its storage"))
ONE_PART = "only this rank's part of a distributed tensor"
group.add("part-twice", "two parts of one name in each file", job([{"a": {"w": part(rank)}, "a.w": part(rank)} for rank in range(2)]),
          warned("unsupported", ONE_PART, tensor="a.w", file=name_of(0), also=(warning("unsupported", ONE_PART, tensor="a.w", file=name_of(1)),)))
group.add("part-missing", "a tensor that one rank lacks", job([{"w": part(0)}, {"v": part(1)}]),
          Outcome(1, 0, 3, (error("missing", "a rank has no part", tensor="w"), error("missing", "a rank has no part", tensor="v"), UNCOVERED, error("coverage", "", tensor="v"))))

# --- Files.

group.add("rank-missing", "a rank without its file", job(files={name_of(1): "absent"}), refused("missing_file", "files of ranks are missing"))
group.add("rank-folder", "a rank whose file is a folder", job([{"w": part(0)}], files={name_of(1): None}), refused("io", ""))
group.add("rank-garbage", "a rank whose file is no torch.save file", job(files={name_of(1): b"\0" * 64}), refused("unsupported", ""))
group.add("rank-outside", "a rank outside its world", job(files={name_of(7): b""}), refused("bad_metadata", "a file's rank is not in its world"))
group.add("world-huge", "a world of 2^62 ranks", lambda f: ((f / name_of(0, 1 << 62)).write_bytes(b""), f)[1], refused("bad_metadata", "a file's rank is not in its world"))
group.add("worlds-two", "files of two worlds", job(files={name_of(0, 3): b""}), refused("bad_metadata", "several world sizes"))
group.add("optimizer-garbage", "an optimizer that is no torch.save file", job(files={name_of(r, state="optim"): b"\0" * 64 for r in range(2)}),
          damaged("unsupported", "not a torch.save file", file=name_of(0, state="optim"), digest=0,
                  also=(error("unsupported", "not a torch.save file", file=name_of(1, state="optim")), warning("leftover", ""))))
group.add("optimizer-damaged", "an optimizer whose checksum is wrong", job(files={name_of(r, state="optim"): z.archive([z.Entry(b"archive/data.pkl", p.dumps({}), crc=1)]) for r in range(2)}),
          damaged("checksum", "", digest=0, also=(error("checksum", ""), warning("leftover", ""))))
group.add("optimizer-behind", "bytes behind the optimizer of a rank", job(files={name_of(r, state="optim"): z.torch_file(p.dumps({"state": {}})) + b"\0" * 100 * r for r in range(2)}),
          damaged("unsupported", "bytes follow the end of the zip", digest=0, also=(warning("leftover", ""),)))
group.add("optimizer-other", "an optimizer without groups", job(files={name_of(r, state="optim"): z.torch_file(p.dumps({"state": {}})) for r in range(2)}),
          warned("unsupported", "no groups of parameters", file=name_of(0, state="optim"), also=(warning("leftover", ""),)))
