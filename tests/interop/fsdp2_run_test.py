"""Runs of real FSDP2 go on from ours, and ours from theirs, with the same numbers."""
import json
import shutil

import pytest

import golden
import tools
from token_stream import token_stream

MODELS = {c.name: c / "ckpt" for c in golden.models()}
# Dense, with a tied head, with norms in attention, with experts in one tensor; the optimizer in groups and under every name.
CASES = [("llama-untied-bf16", "nested"), ("llama-untied-bf16", "flattened"), ("llama-tied-fp32", "nested"),
         ("qwen3-tied-bf16", "nested"), ("qwen3moe-fused-bf16", "nested"), ("qwen2moe-bf16", "nested"), ("olmo2-bf16", "nested")]
TRAINED = ("llama-untied-bf16", "nested")
case = pytest.mark.parametrize("case", CASES, ids="-".join)


def peer(ranks, jobs):
    return tools.peer("2.15.0", "fsdp2_run.py", ranks, json.dumps(jobs, default=str), timeout=900)


def convert(source, target, *options):
    return tools.convert("convert", source, target, *options)


def described(path):
    return {k: {"shape": s, "dtype": d, "sha256": h} for k, (s, d, h) in tools.described(path).items()}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """case -> (the folder that real FSDP2 saved, what it says of its state)."""
    root = tmp_path_factory.mktemp("theirs")
    folders = {c: root / "-".join(c) for c in CASES}
    told = peer(2, [("start", MODELS[name], folders[name, form], form, 2) for name, form in CASES])
    return {c: (folders[c], answer) for c, answer in zip(CASES, told)}


def train(load, root, data, *more, with_notes=False, refused=False):
    settings = {"load": load, "save": root, "save_format": "fsdp2", "data_path": data, "seq_length": 16, "global_batch_size": 2,
                "micro_batch_size": 1, "lr_decay_style": "constant", "shuffle": "false", "metrics": root.with_suffix(".jsonl")}
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    code, _, stderr = tools.run("ckpt-train", "--ranks", 2, *words, *(word for setting in more for word in ("--set", setting)))
    assert (code != 0) == refused, stderr
    if refused:
        return stderr
    losses = [json.loads(line)["loss"] for line in root.with_suffix(".jsonl").read_text().splitlines()]
    return (losses, stderr) if with_notes else losses


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The batches that the peer sees from the third update on."""
    path = tmp_path_factory.mktemp("data") / "tokens.jsonl"
    vocabulary = json.loads((MODELS[TRAINED[0]] / "config.json").read_text())["vocab_size"]
    # One document, so that no window begins elsewhere: two sequences of 16 tokens a step.
    tokens = token_stream(vocabulary)[2 * 2 * 16 : 2 * 6 * 16 + 1].tolist()
    path.write_text(json.dumps({"input_ids": tokens}) + "\n")
    return path


@pytest.fixture(scope="module")
def ours(theirs, data, tmp_path_factory):
    """case -> what real FSDP2 says of the run that went through Megatron's formats; "trained": of one that ckpt-train went on with."""
    root = tmp_path_factory.mktemp("ours")
    jobs = []
    for name, form in CASES:
        folder, _ = theirs[name, form]
        here = root / f"{name}-{form}"
        convert(folder, here / "mfsdp", "--to", "fsdp_dtensor", "--hf-assets", MODELS[name])
        convert(here / "mfsdp", here / "core", "--to", "torch_dist")
        convert(here / "core", here / "back", "--to", "dcp", "--naming", "fsdp2", "--optimizer-state-dict", form)
        jobs.append(("load", MODELS[name], here / "back", form, 2))
    name, form = TRAINED
    start = shutil.copytree(theirs[TRAINED][0], root / "start")
    shutil.copy(MODELS[name] / "config.json", start)  # all that a program with FSDP2 leaves to say
    first = train(start, root / "run", data, "restart_data=true", "train_iters=4")
    saved = root / "run" / "iter_0000004"
    further = train(saved, root / "further", data, "train_iters=6")
    told = peer(2, jobs + [("load", MODELS[name], saved, form, 4)])
    answers = dict(zip(CASES, told))
    return answers | {"trained": (told[-1], saved, first, further)}


@case
def test_what_it_saved_we_read(case, theirs):
    folder, told = theirs[case]
    assert described(folder) == told["state"]
    assert tools.inspect("summary", folder)["format"] == "dcp"


@case
def test_it_goes_on_from_what_went_through_megatrons_formats(case, theirs, ours):
    """FSDP2 -> fsdp_dtensor -> torch_dist -> FSDP2: the same state, bit for bit, and so the same losses."""
    want, got = theirs[case][1], ours[case]
    assert got["state"] == want["state"]
    assert (got["loss"], got["next_loss"]) == (want["loss"], want["next_loss"])


def sorted_names(objects):
    return {k: sorted(v) if k.endswith(".params") else v for k, v in objects.items()}


@case
def test_groups_and_scheduler_are_the_same(case, theirs, ours):
    want, got = sorted_names(theirs[case][1]["objects"]), sorted_names(ours[case]["objects"])
    assert got == want


def test_our_trainer_goes_on_from_it(theirs, ours):
    _, _, first, _ = ours["trained"]
    told = theirs[TRAINED][1]
    assert len(first) == 2
    assert first[0] == pytest.approx(told["loss"], rel=2e-6)


@pytest.mark.parametrize("target", ["fsdp_dtensor", "torch_dist"])
def test_our_trainer_goes_on_from_what_it_became(target, theirs, data, tmp_path):
    """The state of a program that stores no arguments, in a form that has them: its batch stays unknown, and is said to be."""
    source = theirs[TRAINED][0]
    convert(source, tmp_path / "there", "--to", target, "--hf-assets", MODELS[TRAINED[0]])
    losses, notes = train(tmp_path / "there", tmp_path / "run", data, "restart_data=true", "train_iters=3", with_notes=True)
    assert losses == [pytest.approx(theirs[TRAINED][1]["loss"], rel=2e-6)]
    assert "does not say its global_batch_size" in notes and "batches of 2" in notes


def test_a_rate_that_its_scheduler_changed_is_told(theirs, data, tmp_path):
    source, model = theirs[TRAINED][0], MODELS[TRAINED[0]]
    said = "a scheduler changed the learning rate from 0.001 to 0.0008"
    here = shutil.copytree(source, tmp_path / "source")
    shutil.copy(model / "config.json", here)
    _, notes = train(here, tmp_path / "run", data, "restart_data=true", "train_iters=3", "lr=0.0007", with_notes=True)
    assert said in notes and "here lr=0.0007" in notes
    report = convert(source, tmp_path / "there", "--to", "torch_dist", "--hf-assets", model)
    assert any(said in problem["message"] for problem in report["problems"])


def test_a_programs_own_scheduler_goes_along(theirs, tmp_path):
    """Its state is there as it was, after a conversion of a conversion, too; other formats list it."""
    model = MODELS[TRAINED[0]]
    told = peer(1, [("steps", model, tmp_path / "theirs", "nested", 2)])[0]
    convert(tmp_path / "theirs", tmp_path / "once", "--to", "fsdp2", "--hf-assets", model)
    convert(tmp_path / "once", tmp_path / "twice", "--to", "fsdp2")
    again = peer(1, [("load_steps", model, tmp_path / "twice", "nested", 2)])[0]
    for key in ("state", "objects", "loss", "next_loss"):
        assert again[key] == told[key]
    report = convert(tmp_path / "twice", tmp_path / "core", "--to", "torch_dist")
    assert {"lr_scheduler.step_size", "lr_scheduler.gamma"} <= {entry["key"] for entry in report["dropped"]}


@pytest.fixture(scope="module")
def other_groups(tmp_path_factory):
    """verb -> (the folder that real FSDP2 saved with such parameter groups, what it says of its state)."""
    root, model = tmp_path_factory.mktemp("groups"), MODELS[TRAINED[0]]
    verbs = ("alike", "apart")
    told = peer(2, [(verb, model, root / verb, "nested", 2) for verb in verbs])
    for verb in verbs:
        shutil.copy(model / "config.json", root / verb)
    return {verb: (root / verb, answer) for verb, answer in zip(verbs, told)}


@pytest.fixture(params=[None, "fsdp_dtensor", "torch_dist"])
def carried(request, tmp_path):
    """A function: the run as it was saved, or converted to another format."""

    def carry(source):
        if request.param is None:
            return source
        convert(source, tmp_path / "there", "--to", request.param, "--hf-assets", MODELS[TRAINED[0]])
        return tmp_path / "there"

    return carry


def test_all_decay_if_the_only_group_does(carried, other_groups, data, tmp_path):
    """The loss behind an update tells; the third update of the peer's LambdaLR has 0.8 of its rate."""
    source, told = other_groups["alike"]
    losses = train(carried(source), tmp_path / "run", data, "restart_data=true", "train_iters=4", "lr=0.0008", "clip_grad=0")
    assert losses == [pytest.approx(told[key], rel=2e-6) for key in ("loss", "next_loss")]


@pytest.mark.parametrize("target", [None, "fsdp_dtensor"])
def test_a_rate_of_its_own_is_refused_by_name(target, other_groups, data, tmp_path):
    source = other_groups["apart"][0]
    if target:
        convert(source, tmp_path / "there", "--to", target, "--hf-assets", MODELS[TRAINED[0]])
        source = tmp_path / "there"
    said = train(source, tmp_path / "run", data, "restart_data=true", "train_iters=4", refused=True)
    assert "of 3 says of max_lr" in said and "max_lr=0.001" in said and "max_lr=0.00025" in said and "finetune=true" in said
    train(source, tmp_path / "weights", data, "finetune=true", "train_iters=1")


def test_groups_that_megatron_core_cannot_tell_apart_are_refused(other_groups, tmp_path):
    options = ("--to", "torch_dist", "--hf-assets", MODELS[TRAINED[0]])
    code, _, said = tools.run("ckpt-convert", "convert", other_groups["apart"][0], tmp_path / "there", *options)
    assert code != 0 and "torch_dist does not store which parameters belong to which group" in said
    assert not (tmp_path / "there").exists()
    convert(other_groups["apart"][0], tmp_path / "there", *options, "--weights-only")


def test_it_goes_on_from_our_trainer(ours):
    told, saved, _, further = ours["trained"]
    state = described(saved)
    assert told["state"] == {key: state[key] for key in told["state"]}
    assert set(state) == set(told["state"])
    assert told["loss"] == pytest.approx(further[0], rel=2e-6)


@pytest.mark.parametrize("torch_version", tools.TORCH)
def test_both_versions_of_torch_rebuild_the_state_dicts(torch_version, tmp_path):
    """Without a template: the metadata say where in the nested state dicts every key stands."""
    folder = tmp_path / "run"
    convert(golden.root() / "fsdp_dtensor" / "dense_fsdp2" / "ckpt", folder, "--to", "dcp", "--naming", "fsdp2")
    loaded = tools.peer(torch_version, "dcp_load.py", "torch_save", folder, tmp_path / "run.pt")
    assert loaded["tensors"] == described(folder)
