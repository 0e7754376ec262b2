#!/usr/bin/env python3
"""What ckpt-convert, repair and ckpt-train leave and say when they are stopped or the disk is full, and how it goes on from there.

    interrupted_test.py --bin DIR
"""
import argparse
import filecmp
import json
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from small_disk import SmallDisk, grow

BIN = None
LAYERS, HIDDEN, FFN, VOCAB = 24, 256, 1024, 1000


def write_model(folder):
    """A Llama of random bfloat16 bits (no NaN): some 50 MB in many tensors."""
    folder.mkdir()
    shapes = {"model.embed_tokens.weight": [VOCAB, HIDDEN], "model.norm.weight": [HIDDEN]}
    for layer in range(LAYERS):
        name = f"model.layers.{layer}."
        shapes |= {f"{name}self_attn.{x}_proj.weight": [HIDDEN, HIDDEN] for x in "qkvo"}
        shapes |= {f"{name}mlp.{x}_proj.weight": [FFN, HIDDEN] for x in ("gate", "up")}
        shapes |= {f"{name}mlp.down_proj.weight": [HIDDEN, FFN],
                   f"{name}input_layernorm.weight": [HIDDEN], f"{name}post_attention_layernorm.weight": [HIDDEN]}
    header, at = {}, 0
    for key, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[key] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    noise = random.Random(17).randbytes(at)
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + noise)
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN, "intermediate_size": FFN,
        "num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": VOCAB,
        "tie_word_embeddings": True, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 128,
        "hidden_act": "silu", "torch_dtype": "bfloat16"}))
    return at


def convert(*arguments):
    return subprocess.run([BIN / "ckpt-convert", "hf-to-fsdp", *map(str, arguments)], capture_output=True, text=True)


class Interrupted(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="ckptkit-interrupted-")))
        self.bytes = write_model(self.folder / "model")
        self.target, self.partial = self.folder / "out", self.folder / "out.ckptkit-partial"

    def same_as_undisturbed(self, target):
        done = convert(self.folder / "model", self.folder / "undisturbed")
        self.assertEqual(done.returncode, 0, done.stderr)
        compared = filecmp.dircmp(self.folder / "undisturbed", target)
        self.assertEqual((compared.left_only, compared.right_only, compared.diff_files), ([], [], []))
        names = [path.relative_to(target) for path in target.rglob("*") if path.is_file()]
        self.assertEqual(filecmp.cmpfiles(self.folder / "undisturbed", target, names, shallow=False)[1:], ([], []))

    def stop(self, one, *command):
        """Starts a command that writes the target, and sends it a signal once it has begun to."""
        with subprocess.Popen([BIN / command[0], *command[1:], "--threads", "1"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            while not self.partial.exists() and process.poll() is None:
                time.sleep(0.001)
            process.send_signal(one)
            out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def test_a_signal_says_what_is_left_and_how_to_go_on(self):
        for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(one.name):
                shutil.rmtree(self.partial, ignore_errors=True)
                code, out, err = self.stop(one, "ckpt-convert", "hf-to-fsdp", self.folder / "model", self.target)
                self.assertEqual((code, out), (3, ""), err)
                self.assertIn("error: cancelled: stopped on request", err)
                self.assertIn(f"hint: {self.partial} holds what is done: run ckpt-convert again with --resume to go on", err)
                self.assertTrue(self.partial.is_dir())
                self.assertFalse(self.target.exists())
        done = convert(self.folder / "model", self.target, "--resume")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(self.partial.exists())
        self.same_as_undisturbed(self.target)

    def test_a_repair_that_is_stopped_leaves_nothing(self):
        done = convert(self.folder / "model", self.folder / "damaged", "--parity", "4")
        self.assertEqual(done.returncode, 0, done.stderr)
        (self.folder / "damaged" / "release" / ".metadata").unlink()
        code, out, err = self.stop(signal.SIGINT, "ckpt-inspect", "repair", self.folder / "damaged", "-o", self.target)
        self.assertEqual((code, out), (3, ""), err)
        self.assertIn("error: cancelled: stopped", err)
        self.assertIn("hint: the copy was removed", err)
        self.assertFalse(self.partial.exists() or self.target.exists())

    def test_a_repair_says_how_much_room_it_lacks(self):
        done = convert(self.folder / "model", self.folder / "whole")
        self.assertEqual(done.returncode, 0, done.stderr)
        with SmallDisk(self, self.bytes // 2) as disk:
            command = [BIN / "ckpt-inspect", "repair", self.folder / "whole", "-o", disk / "out"]
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), (3, ""))
            self.assertIn("error: no_space: the disk cannot hold the target", done.stderr)
            self.assertRegex(done.stderr, r"expected .* \((\d+) bytes\) free, found .* \((\d+) bytes\)")
            self.assertIn("hint: nothing was written", done.stderr)
            self.assertEqual(list(disk.iterdir()), [])

    def test_a_disk_that_cannot_hold_the_target_is_refused_at_once(self):
        with SmallDisk(self, self.bytes // 2) as disk:
            for options in ([], ["--json"]):
                done = convert(self.folder / "model", disk / "out", *options)
                self.assertEqual(done.returncode, 3)
                self.assertIn("error: no_space: the disk cannot hold the target", done.stderr)
                self.assertRegex(done.stderr, r"expected .* \((\d+) bytes\) free, found .* \((\d+) bytes\)")
            self.assertEqual(json.loads(done.stdout)["errors"][0]["kind"], "no_space")
            self.assertEqual(list(disk.iterdir()), [])

    def test_a_disk_that_fills_up_says_how_to_go_on(self):
        with SmallDisk(self, self.bytes // 2) as disk:
            # How long compressed tensors are shows only when they are written.
            options = [self.folder / "model", disk / "out", "--compress", "zstd"]
            done = convert(*options)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("error: no_space:", done.stderr)
            self.assertIn("out.ckptkit-partial holds what is done: make room and run ckpt-convert again with --resume", done.stderr)
            grow(disk, 4 * self.bytes)
            done = convert(*options, "--resume")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([path.name for path in disk.iterdir()], ["out"])


class InterruptedTraining(unittest.TestCase):
    """A run whose saves take more room than there is."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="ckptkit-full-")))
        (self.folder / "data.jsonl").write_text("".join(json.dumps({"text": "one two three " * 6}) + "\n" for _ in range(24)))
        done = self.train(self.folder / "roomy", "train_iters=1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.save_bytes = sum(file.stat().st_size for file in (self.folder / "roomy").rglob("*") if file.is_file())

    def train(self, save, *settings, load=None):
        settings = ("num_layers=2", "hidden_size=128", "ffn_hidden_size=512", "num_attention_heads=2", "vocab_size=258",
                    "seq_length=16", "global_batch_size=2", "lr=1e-3", f"data_path={self.folder / 'data.jsonl'}", *settings)
        return subprocess.run([BIN / "ckpt-train", "--threads", "1", "--ranks", "1", "--save", save,
                               *(("--load", load) if load else ()), *(word for one in settings for word in ("--set", one))],
                              capture_output=True, text=True)

    def test_a_disk_that_cannot_hold_a_save_is_refused_before_the_first_step(self):
        with SmallDisk(self, self.save_bytes * 3 // 4) as disk:
            done = self.train(disk / "out", "train_iters=2")
            self.assertEqual((done.returncode, done.stdout), (3, ""), done.stderr)
            self.assertIn("error: no_space: the disk cannot hold the target", done.stderr)
            self.assertRegex(done.stderr, r"expected .* \((\d+) bytes\) free, found .* \((\d+) bytes\)")
            self.assertEqual(list(disk.iterdir()), [])
        with SmallDisk(self, self.save_bytes * 5 // 2) as disk:
            done = self.train(disk / "out", "train_iters=9", "save_interval=1", "keep_checkpoints=2")
            self.assertEqual((done.returncode, done.stdout), (3, ""), done.stderr)
            self.assertIn("keep_checkpoints=2 leaves up to 2 there beside the new one", done.stderr)
            done = self.train(disk / "out", "train_iters=9", "save_interval=1", "keep_checkpoints=1")
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_disk_that_fills_up_keeps_the_last_checkpoint_and_says_how_to_go_on(self):
        with SmallDisk(self, self.save_bytes * 3 // 2) as disk:
            done = self.train(disk / "out", "train_iters=2", "save_interval=1")
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("the disk has room for 1 of the 2 checkpoints to come", done.stderr)
            self.assertIn("error: no_space:", done.stderr)
            self.assertIn("out/iter_0000002.ckptkit-partial holds a part of it and can be removed", done.stderr)
            self.assertRegex(done.stderr, r"out/iter_0000001 is complete: make room \(a save takes .* in all\) and resume it")
            grow(disk, 4 * self.save_bytes)
            done = self.train(disk / "out", "train_iters=2", "save_interval=1", load=disk / "out")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(sorted(path.name for path in (disk / "out").glob("iter*")), ["iter_0000001", "iter_0000002"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    arguments, rest = parser.parse_known_args()
    BIN = arguments.bin
    unittest.main(argv=[sys.argv[0], *rest])
