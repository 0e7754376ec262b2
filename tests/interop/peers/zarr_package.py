"""The package zarr 2 for Megatron-Core's older backend."""
import sys
import types


def install(folder):
    """Makes zarr, which lies in `folder`, importable."""
    sys.path.insert(0, folder)
    # It prints trees by a package that exists as source alone. No tree is printed here.
    sys.modules["asciitree"] = types.SimpleNamespace(BoxStyle=object, LeftAligned=object)
    sys.modules["asciitree.traversal"] = types.SimpleNamespace(Traversal=object)
    import tensorstore  # noqa: F401, gives numpy the type bfloat16
