"""Indexed datasets go both ways between us and the original, megatron-core's IndexedDataset."""
import json
import random
import subprocess
import sys

import numpy
import pytest
import torch

import packages
from tools import BIN

TYPES = ["uint8", "int8", "int16", "int32", "int64", "uint16"]
HIGHEST = {"uint8": 255, "int8": 127, "int16": 32767, "int32": 2**31 - 1, "int64": 2**31 - 1, "uint16": 65535}


@pytest.fixture(scope="session")
def megatron():
    """Modules of the original, without what it depends on: reading and writing data needs none of that."""
    sys.path.insert(0, str(packages.megatron_core("0.16.1")))
    from megatron.core.datasets import helpers, indexed_dataset
    return indexed_dataset, helpers


def ours(*arguments, documents=None):
    lines = None if documents is None else "".join(json.dumps(d) + "\n" for d in documents)
    done = subprocess.run([BIN / "indexed-dataset-peer", *map(str, arguments)], input=lines, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout else None


def some_documents(dtype, seed):
    """Documents of several sequences, one, or none; sequences of no tokens among them; the type's highest token."""
    draw = random.Random(seed)
    documents = [[[draw.randint(0, HIGHEST[dtype]) for _ in range(draw.choice([0, 1, 7, 300]))]
                  for _ in range(draw.choice([0, 1, 1, 3]))] for _ in range(60)]
    return documents + [[[HIGHEST[dtype], 0]]]


def build(indexed_dataset, prefix, dtype, documents):
    builder = indexed_dataset.IndexedDatasetBuilder(f"{prefix}.bin", dtype=getattr(numpy, dtype))
    for document in documents:
        if len(document) == 1:
            builder.add_document(torch.tensor(document[0], dtype=torch.int64), [len(document[0])])
            continue
        for sequence in document:
            builder.add_item(torch.tensor(sequence, dtype=torch.int64))
        builder.end_document()
    builder.finalize(f"{prefix}.idx")


@pytest.mark.parametrize("dtype", TYPES)
def test_we_read_what_the_original_writes(megatron, dtype, tmp_path):
    documents = some_documents(dtype, 1)
    build(megatron[0], tmp_path / "a", dtype, documents)
    shown = ours("show", tmp_path / "a")
    assert shown["type"] == dtype
    assert shown["documents"] == [sum(d, []) for d in documents]
    assert shown["lengths"] == [len(s) for d in documents for s in d]


@pytest.mark.parametrize("dtype", TYPES)
def test_the_original_reads_what_we_write(megatron, dtype, tmp_path):
    documents = some_documents(dtype, 2)
    ours("write", tmp_path / "a", dtype, documents=documents)
    for mmap in (True, False):
        dataset = megatron[0].IndexedDataset(str(tmp_path / "a"), mmap=mmap)
        assert dataset.index.dtype == getattr(numpy, dtype)
        assert [dataset[i].tolist() for i in range(len(dataset))] == [s for d in documents for s in d]
        assert dataset.document_indices.tolist() == numpy.cumsum([0] + [len(d) for d in documents]).tolist()


@pytest.mark.parametrize("dtype", TYPES)
def test_both_write_the_same_bytes(megatron, dtype, tmp_path):
    documents = some_documents(dtype, 3)
    build(megatron[0], tmp_path / "theirs", dtype, documents)
    ours("write", tmp_path / "ours", dtype, documents=documents)
    for end in (".bin", ".idx"):
        assert (tmp_path / f"ours{end}").read_bytes() == (tmp_path / f"theirs{end}").read_bytes()


def test_we_pass_over_the_modes_of_several_modalities(megatron, tmp_path):
    builder = megatron[0].IndexedDatasetBuilder(str(tmp_path / "a.bin"), multimodal=True)
    builder.add_item(torch.tensor([1, 2, 3]), 1)
    builder.add_item(torch.tensor([4]), 0)
    builder.end_document()
    builder.finalize(str(tmp_path / "a.idx"))
    assert ours("show", tmp_path / "a")["documents"] == [[1, 2, 3, 4]]


@pytest.mark.parametrize("seq_length", [2, 3, 16, 64, 500])
def test_windows_are_the_samples_of_the_original(megatron, seq_length, tmp_path):
    indexed_dataset, helpers = megatron
    documents = [d for d in some_documents("uint16", 4) if len(d) == 1 and d[0]]
    build(indexed_dataset, tmp_path / "a", "uint16", documents)
    dataset = indexed_dataset.IndexedDataset(str(tmp_path / "a"))
    order = numpy.arange(len(dataset), dtype=numpy.int32)
    places = helpers.build_sample_idx(dataset.sequence_lengths, order, seq_length, 1, int(dataset.sequence_lengths.sum()))
    samples = []
    for (first, begin), (last, end) in zip(places.tolist(), places.tolist()[1:]):
        # As GPTDataset puts a sample together: the tokens between two places, and one more.
        parts = [dataset.get(i, offset=begin if i == first else 0,
                             length=end + 1 - (begin if i == first else 0) if i == last else None)
                 for i in range(first, last + 1)]
        samples.append(numpy.concatenate(parts).tolist())
    assert len(samples) > 1
    assert ours("windows", tmp_path / "a", seq_length) == samples
