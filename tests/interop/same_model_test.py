"""Any target layout is the same model: `digest --as hf` does not depend on how it was written."""
import pytest

import golden
import tools

LAYOUTS = {"one_file": ["--files", "1"], "five_files": ["--files", "5"], "one_thread": ["--threads", "1"],
           "four_threads": ["--threads", "4"], "small_budget": ["--memory-budget", "1MiB"],
           "all_small": ["--files", "7", "--threads", "3", "--memory-budget", "1MiB"],
           "local_layers": ["--transformer-impl", "local"], "sequential_experts": ["--expert-names", "sequential"]}


def digest(path):
    document = tools.inspect("digest", path, "--as", "hf", "--algorithm", "sha256")
    return document["checkpoint"], document["tensors"]


@pytest.mark.parametrize("case", golden.models(), ids=golden.name)
def test_digest_as_hf_is_that_of_the_source(case, conversions, tmp_path):
    source = digest(case / "ckpt")
    assert digest(conversions.fsdp(case)) == source
    tools.convert("fsdp-to-hf", conversions.fsdp(case), tmp_path / "back")
    assert digest(tmp_path / "back") == source


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["llama-tied-fp32", "qwen3moe-norm-bf16", "qwen3moe-fused-bf16"])
def test_digest_does_not_depend_on_the_layout(name, layout, conversions, tmp_path):
    case = next(c for c in golden.models() if c.name == name)
    written = conversions.fsdp(case, *LAYOUTS[layout])
    assert digest(written) == digest(case / "ckpt")
    tools.convert("fsdp-to-hf", written, tmp_path / "back", "--threads", "2", "--memory-budget", "1MiB")
    assert digest(tmp_path / "back") == digest(case / "ckpt")


@pytest.mark.parametrize("layout", ["five_files", "four_threads", "small_budget"])
def test_the_same_bytes_whatever_the_threads_and_the_budget(layout, conversions):
    """Only --files may change what is on disk."""
    case = next(c for c in golden.models() if c.name == "qwen3moe-norm-bf16")
    files = ["--files", "5"] if layout == "five_files" else ["--files", "2"]
    extra = [] if layout == "five_files" else LAYOUTS[layout]
    one, two = (conversions.fsdp(case, *files, *options) for options in (["--threads", "1"], [*extra, "--threads", "2"] if "--threads" not in extra else extra))
    names = sorted(p.relative_to(one) for p in one.rglob("*") if p.is_file())
    assert names == sorted(p.relative_to(two) for p in two.rglob("*") if p.is_file())
    for name in names:
        assert (one / name).read_bytes() == (two / name).read_bytes(), name
