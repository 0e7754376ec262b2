"""TensorBoard itself reads the event files of a run, each step once however often the run began."""
import json
import subprocess
import sys

import pytest

import packages
from tools import BIN

# TensorBoard's readers, without its server and without TensorFlow.
PACKAGES = ["tensorboard==2.20.0", "protobuf==6.33.0", "absl-py==2.3.1", "packaging==25.0"]


@pytest.fixture(scope="session")
def event_accumulator():
    sys.path.insert(0, str(packages.installed(*PACKAGES)))
    from tensorboard.backend.event_processing import event_accumulator
    return event_accumulator.EventAccumulator


def train(folder, steps):
    """The metrics of a run of so many steps that writes events into folder/events."""
    (folder / "data.jsonl").write_text("".join(json.dumps({"text": "one two three four "}) + "\n" for _ in range(40)))
    settings = {"num_layers": 1, "hidden_size": 16, "ffn_hidden_size": 24, "num_attention_heads": 2, "vocab_size": 258,
                "seq_length": 16, "global_batch_size": 4, "lr_decay_style": "linear", "lr_decay_iters": 20, "train_iters": steps,
                "data_path": folder / "data.jsonl", "valid_data_path": folder / "data.jsonl", "eval_interval": 4,
                "eval_iters": 1, "tensorboard_dir": folder / "events"}
    options = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    done = subprocess.run([BIN / "ckpt-train", "train", "--json", *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def scalars(event_accumulator, folder):
    events = event_accumulator(str(folder / "events"))
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def expected(metrics):
    tags = ["loss", "grad_norm", "lr", "tokens_per_s", "peak_bytes", "eval_loss", "data_wait_ms"]
    tags += [f"{phase}_ms" for phase in ("idle", "forward", "backward", "gather_wait", "reduce_wait", "update")]
    return {tag: [(m["step"], pytest.approx(m[tag], rel=1e-6)) for m in metrics if tag in m] for tag in tags}


def test_reads_what_the_metrics_say(event_accumulator, tmp_path):
    metrics = train(tmp_path, 9)
    assert [m["step"] for m in metrics if "eval_loss" in m] == [4, 8, 9]
    assert scalars(event_accumulator, tmp_path) == expected(metrics)


def test_steps_that_are_repeated_replace_the_former(event_accumulator, tmp_path):
    train(tmp_path, 9)
    metrics = train(tmp_path, 5)
    assert len(list((tmp_path / "events").iterdir())) == 2
    assert scalars(event_accumulator, tmp_path) == expected(metrics)
