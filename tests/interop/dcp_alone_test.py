"""Ranks of real PyTorch that save without collectives store all their replicas: what differs between them is told and listed."""
import pytest

import tools

# Key -> what a copy of it takes; of objects, more than nothing.
DIFFERING = {"nest.x.0": 4, "own": 12, "position": None, "random": None}
RUN = {"model.model.norm.weight": 32 * 4, "optim.state.lm_head.weight.exp_avg": 64 * 32 * 4}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    tools.peer("2.15.0", "dcp_alone.py", folder)
    return folder


def check(document, differing):
    """The document warns of these keys and of nothing else, with the file of each rank."""
    assert [p["tensor"] for p in document["problems"]] == sorted(differing, key=lambda key: (differing[key] is None, key))
    for problem in document["problems"]:
        assert problem["kind"] == "value_mismatch" and problem["severity"] == "warning"
        assert problem["file"] == "__0_0.distcp" and "__1_0.distcp" in problem["actual"]


def check_dropped(report, differing):
    copies = [entry for entry in report["dropped"] if "copy" in entry["key"]]
    assert [entry["key"] for entry in copies] == [f"{problem['tensor']} (copy 2)" for problem in report["problems"]]
    for entry in copies:
        assert entry["why"] == "another rank stored other values"
        size = differing[entry["key"].removesuffix(" (copy 2)")]
        assert entry["bytes"] > 0 if size is None else entry["bytes"] == size


@pytest.mark.parametrize("name, differing", [("equal", {}), ("differing", DIFFERING), ("run", RUN)])
def test_verify_warns(name, differing, saved):
    document = tools.inspect("verify", saved / name)
    assert document["ok"]
    check(document, differing)


@pytest.mark.parametrize("more", [(), ("--no-verify",)])
@pytest.mark.parametrize("name, differing", [("equal", {}), ("differing", DIFFERING)])
def test_a_conversion_lists_what_it_leaves(name, differing, more, saved, tmp_path):
    report = tools.convert("convert", saved / name, tmp_path / "out", "--to", "dcp", *more)
    check(report, differing)
    check_dropped(report, differing)
    assert len(report["dropped"]) == len(differing)
    # What the first rank stored is there.
    assert tools.digests(tmp_path / "out") == tools.digests(saved / name)
    assert tools.inspect("meta", tmp_path / "out")["objects"] == tools.inspect("meta", saved / name)["objects"]
    assert tools.inspect("verify", tmp_path / "out")["problems"] == []


def test_conversions_of_models_and_of_runs_list_it_too(saved, tmp_path):
    assets = ("--hf-assets", saved / "assets")
    report = tools.convert("convert", saved / "run", tmp_path / "run", "--to", "fsdp_dtensor", *assets)
    check(report, RUN)
    check_dropped(report, RUN)
    # Of the optimizer, which stays behind, nothing is taken.
    weights = {key: size for key, size in RUN.items() if key.startswith("model.")}
    report = tools.convert("convert", saved / "run", tmp_path / "weights", "--to", "hf", "--weights-only", *assets)
    check(report, weights)
    check_dropped(report, weights)
