#!/usr/bin/env python3
"""Writes the malicious corpus: make_corpus.py FOLDER [PATTERN].

Every case is declared once, in one of the modules below, with what it attacks and exactly what the tools must say.
FOLDER/<class>/<name>/ gets the files; run_corpus.py does the same in a temporary folder and checks the promises.
"""
import argparse
import collections
import fnmatch
import pathlib

import bridge_cases
import dcp_cases
import fsdp2_cases
import hdf5_cases
import legacy_cases
import mp_rank_cases
import path_cases
import pickle_cases
import safetensors_cases
import shape_cases
import side_file_cases
import torch_bin_cases
import verl_cases
import zarr_cases
import zip_cases
import zstd_cases

MODULES = (pickle_cases, zip_cases, safetensors_cases, shape_cases, path_cases, zstd_cases, legacy_cases, dcp_cases,
           fsdp2_cases, hdf5_cases, side_file_cases, bridge_cases, mp_rank_cases, torch_bin_cases, verl_cases, zarr_cases)

# How many cases each class must have at least.
LEAST = {"pickle": 80, "zip": 60, "safetensors": 60, "shapes": 40, "paths": 30, "zstd": 20, "hdf5": 25, "fsdp2": 25,
         "bridge": 30, "mp_rank": 30, "torch_bin": 40, "verl": 30, "zarr": 40}
LEAST_IN_ALL = 500


def cases(pattern="*"):
    """Every case whose name matches, in order of declaration."""
    found = [case for module in MODULES for case in module.CASES if fnmatch.fnmatch(case.name, pattern)]
    names = collections.Counter(case.name for case in found)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise ValueError(f"declared twice: {twice}")
    return found


def counts(selected):
    return collections.Counter(case.group for case in selected)


def write(case, folder):
    """Makes the case's files below `folder`; the path to inspect."""
    place = pathlib.Path(folder) / case.name
    place.mkdir(parents=True)
    return case.write(place)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("pattern", nargs="?", default="*", help="of names of cases")
    args = parser.parse_args()
    selected = cases(args.pattern)
    for case in selected:
        write(case, args.folder)
    for group, count in sorted(counts(selected).items()):
        print(f"{group:12} {count:4}")
    print(f"{'all':12} {len(selected):4}")


if __name__ == "__main__":
    main()
