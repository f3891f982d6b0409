"""A forward program in the epilogue of its product, beside the same program behind it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from fusegen.emulate import Buffer, EmulatedLibrary
from fusegen.runtime.launchers import Call, Launcher
from fusegen.verify.subjects.emulated import EmulatedTail, constant
from tests.emulate.other_chains import Other
from tests.emulate.split import Emulated, product_of


def split_spec(other: Other, name: str) -> str:
    text = other.spec(name)
    assert "{op: linear, name: fc" in text
    return text.replace("{op: linear, name: fc", "{op: linear, name: fc, precision: fp32_split")


def normal(rows: int, columns: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


class Both(EmulatedTail):
    """A forward program in the epilogue, and in kernels of its own that read the product that the other one left."""

    def run_both(
        self, contraction: EmulatedLibrary, x: np.ndarray, w: np.ndarray, tensors: dict, seed: int, misalign: str
    ) -> tuple[np.ndarray, dict, dict]:
        """The product, and what either writes. tensors: the chain's further inputs."""
        (self.rows, depth), self.channels = x.shape, len(w)
        self.mode, self.groups, self.misalign = self.plan.modes[0], self._groups(), misalign
        program, source = self.variant.forward, self.variant.chain.source.name
        launcher = Launcher(self.plan, program)
        call = Call(self.mode.index, self.rows, self.channels, 1 if program.groups is None else self.groups)
        assert self.library.call_int64(f"{launcher.symbol}_takes_product", call.struct) == 1
        inputs = {t.name: self._buffer(t, tensors) for t in program.inputs if t.name != source}
        constants = {name: constant(self.plan, self.module, self.mode, name) for name in program.constants}
        product = Buffer.poisoned((self.rows, self.channels), torch.float32)
        left, right = Emulated(contraction, x), Emulated(contraction, w)
        given = product_of(0, (self.rows, self.channels, depth), left, right, product)
        found = []
        for name, more in ((f"{launcher.symbol}_product", (given,)), (launcher.symbol, ())):
            if not more:
                product = Buffer.from_tensor(product.tensor(), readonly=True)
            outputs = {t.name: self._poisoned(t) for t in program.outputs}
            filled = launcher.arguments({**inputs, **outputs, source: product}, constants, self.rows)
            bytes_ = self.library.call_int64(f"{launcher.symbol}_workspace", call.struct)
            workspace = Buffer.poisoned((bytes_ // 4,), torch.float32) if bytes_ else None
            self.library.call(name, replace(call, workspace=workspace).struct, filled, *more, seed=seed)
            found.append({key: buffer.tensor() for key, buffer in outputs.items()})
        return product.tensor().numpy(), *found
