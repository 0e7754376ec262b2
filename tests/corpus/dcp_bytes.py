"""Distributed checkpoints: .metadata and data files of which every number can lie."""
import pickle_bytes as p
import zip_bytes as z

METADATA = "torch.distributed.checkpoint.metadata"
FILE = "__0_0.distcp"


def index(key, offset=None):
    return p.Inst(p.G(METADATA, "MetadataIndex"), {"fqn": key, "offset": None if offset is None else size(offset), "index": None})


def size(dims):
    return p.Call(p.G("torch", "Size"), (dims,))


def chunk(offsets, sizes):
    return p.Inst(p.G(METADATA, "ChunkStorageMetadata"), {"offsets": size(offsets), "sizes": size(sizes)})


def properties(dtype="float32"):
    return p.Inst(p.G(METADATA, "TensorProperties"), {"dtype": p.G("torch", dtype)})


def described(shape, chunks=None, dtype="float32"):
    """TensorStorageMetadata; `chunks`: [(offsets, sizes)], one over everything if not given."""
    if chunks is None:
        chunks = [((0,) * len(shape), shape)]
    return p.Inst(p.G(METADATA, "TensorStorageMetadata"),
                  {"properties": properties(dtype), "size": size(shape), "chunks": [chunk(*c) for c in chunks]})


def stored(offset, length, path=FILE, transforms=None):
    state = {"relative_path": path, "offset": offset, "length": length}
    if transforms is not None:
        state["transform_descriptors"] = transforms
    return p.Inst(p.G("torch.distributed.checkpoint.filesystem", "_StorageInfo"), state)


class Pairs:
    """A dict by its items, whose keys need not be hashable here."""
    def __init__(self, pairs):
        self.opcodes = b"}(" + b"".join(p.enc(k) + p.enc(v) for k, v in pairs) + b"u"


def root(tensors, storage, **more):
    """`tensors`: {key: description} or [(key, description)]; `storage`: [(index, info)]."""
    if isinstance(tensors, dict):
        tensors = list(tensors.items())
    return p.Inst(p.G(METADATA, "Metadata"),
                  {"state_dict_metadata": Pairs(tensors), "planner_data": None, "storage_data": Pairs(storage), **more})


def item(shape=(4,), elements=None, cls="FloatStorage", data=None, **options):
    """The torch.save file of one tensor; `data`: its storage."""
    if data is None:
        data = b"\0" * 4 * (elements or 4)
    count = len(data) // 4 if elements is None else elements
    return z.torch_file(p.dumps(p.tensor(shape, elements=count, cls=cls, **options)), {"0": data})


def write(metadata, files=None):
    """A case: a folder with .metadata (bytes or a value to pickle) and data files."""
    def make(folder):
        files_now = files() if callable(files) else files
        data = metadata() if callable(metadata) else metadata
        (folder / ".metadata").write_bytes(data if isinstance(data, bytes) else p.dumps(data))
        for name, content in ({FILE: item()} if files_now is None else files_now).items():
            (folder / name).write_bytes(content)
        return folder
    return make


def one_tensor(description=None, info=None, *, key="w", offset=(0,), files=None, **more):
    """A checkpoint of the one tensor `w` of four floats, unless told otherwise."""
    description = described((4,)) if description is None else description
    info = stored(0, len(item())) if info is None else info
    return write(root({key: description}, [(index(key, offset), info)], **more), files)
