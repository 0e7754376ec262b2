"""Shared set-up. Run through tests/interop/run, which makes the virtual environments."""
import pytest

import golden
import tools


def pytest_report_header(config):
    return [f"tools: {tools.BIN}", f"goldens: {golden.root()} ({len(golden.models())} models)"]


@pytest.fixture(scope="session", autouse=True)
def tools_are_built():
    for tool in ("ckpt-inspect", "ckpt-convert", "ckpt-train"):
        assert (tools.BIN / tool).exists(), f"{tools.BIN / tool} is not built"


class Conversions:
    """Golden models as fsdp_dtensor, and as the repositories that come back from it, converted once a session."""

    def __init__(self, folder):
        self._folder = folder
        self._done = {}

    def fsdp(self, case, *options):
        key = (case, options)
        if key not in self._done:
            target = self._folder / f"{case.name}-{len(self._done)}"
            tools.convert("hf-to-fsdp", case / "ckpt", target, *options)
            self._done[key] = target
        return self._done[key]

    def back(self, case):
        key = (case, "back")
        if key not in self._done:
            target = self._folder / f"back-{len(self._done)}" / case.name
            tools.convert("fsdp-to-hf", self.fsdp(case), target)
            self._done[key] = target
        return self._done[key]


@pytest.fixture(scope="session")
def conversions(tmp_path_factory):
    return Conversions(tmp_path_factory.mktemp("fsdp"))
