"""Descriptors of molecules: numbers such as weight, lipophilicity, surface areas, counts of atoms and rings.

All are from RDKit: 28 common properties, 36 surface areas by partial charge, refractivity and lipophilicity,
and the 42 molecular quantum numbers. They take 0.4 ms for a molecule; slower ones, such as connectivity
indices, did not rank better (`results/molecules`).
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from mmb._extras import require

_PROPERTIES = (
    "exactmw amw lipinskiHBA lipinskiHBD NumRotatableBonds NumHBD NumHBA NumHeavyAtoms NumAtoms "
    "NumHeteroatoms NumAmideBonds FractionCSP3 NumRings NumAromaticRings NumAliphaticRings NumSaturatedRings "
    "NumHeterocycles NumAromaticHeterocycles NumSaturatedHeterocycles NumAliphaticHeterocycles NumSpiroAtoms "
    "NumBridgeheadAtoms NumAtomStereoCenters NumUnspecifiedAtomStereoCenters labuteASA tpsa CrippenClogP "
    "CrippenMR"
)
_LISTS = ("PEOE_VSA_", "SMR_VSA_", "SlogP_VSA_", "MQNs_")  # functions of RDKit that return several numbers

# Mean and standard deviation of each over the 93,087 molecules of MUV, a choice of drug-like compounds. They
# bring the numbers of any molecules to one scale, so that nothing has to be fitted and kept. Where all
# molecules of MUV have the same number, the deviation is set to 1.
_MEANS = """
    345 345.4 5.756 1.06 4.656 0.9874 4.638 24.23 43.04 6.643 0.8483 0.2989 3.051 2.311 0.7399 0.4574
    1.603 1.026 0.3582 0.5768 0.01354 0.04486 0.3007 0.3007 143.8 71.81 2.865 93.14 11.01 7.936 5.31
    2.28 3.232 23.69 34.43 19.15 13.89 7.172 4.737 4.937 3.68 2.224 12.79 0.3219 10.5 2.164 21.2 16.3
    51.5 0 5.763 23.16 8.486 32.62 10.59 5.422 22.39 42.9 0.6285 6.106 0 4.597 3.05 6.898 17.59 0.1372
    0.1294 0.03741 0 0.5834 0 0.9399 1.988 2.405 0.4228 24.23 7.688 1.832 0.06042 10.33 6.364 0 4.656
    8.619 5.756 1.06 0.9872 0.03567 0.03571 3.84 2.899 1.201 0.204 9.847 6.165 0.07701 0.01032 0.002911
    0.9197 2.095 0.02093 0.001375 6.446e-05 0.000419 1.253 0.6764
"""
_DEVIATIONS = """
    71 71.08 1.762 0.8726 2.112 0.7724 1.587 5.05 9.803 1.97 0.8498 0.1721 0.9997 0.9609 0.8324 0.699
    0.9161 0.8686 0.5703 0.6963 0.118 0.3734 0.6458 0.6458 29.1 23.18 1.121 19.18 6.139 5.628 5.144
    4.022 5.652 15.65 14.29 12.13 9.394 6.606 5.681 5.528 4.291 3.583 7.35 1.404 7.06 4.27 15.58 13.21
    20.44 1 7.088 11.16 5.751 15.95 7.656 6.892 14.57 18.72 1.825 7.575 1 5.081 4.83 8.709 4.046 0.5496
    0.3708 0.1906 1 0.7023 1 0.8284 1.492 1.42 0.6748 5.05 2.98 1.111 0.2651 3.851 2.455 1 2.112 2.983
    1.762 0.8726 0.7724 0.1909 0.191 1.746 1.917 0.9754 0.4414 3.465 2.263 0.3132 0.1026 0.05427 0.804
    0.9746 0.1465 0.03706 0.00927 0.0234 1.642 1.202
"""
_LARGEST = 4.0  # deviations from the mean; what is beyond counts as this

COUNT = len(_MEANS.split())
"""Number of descriptors."""


def describe(molecules: Sequence[Any]) -> Any:
    """Descriptors of RDKit molecules on a common scale, `float32 [n, COUNT]`.

    Those of a molecule that is None are zeros, as of an average one; so are those that RDKit cannot compute,
    such as charges next to metals.
    """
    np = require("numpy", extra="molecules")
    found = np.full((len(molecules), COUNT), np.nan)
    for row, molecule in enumerate(molecules):
        if molecule is not None:
            found[row] = _raw(molecule)
    means, deviations = (np.array(text.split(), float) for text in (_MEANS, _DEVIATIONS))
    scaled = ((found - means) / deviations).clip(-_LARGEST, _LARGEST)
    return np.where(np.isfinite(found), scaled, 0).astype(np.float32)


def _raw(molecule: Any) -> list[float]:
    """The numbers as RDKit gives them; NaN for all if the molecule is one it would not sanitize."""
    module = require("rdkit.Chem.rdMolDescriptors", extra="molecules")
    try:
        numbers = [*_properties().ComputeProperties(molecule)]
        return numbers + [number for name in _LISTS for number in getattr(module, name)(molecule)]
    except (RuntimeError, ValueError):
        return [float("nan")] * COUNT


@cache
def _properties() -> Any:
    return require("rdkit.Chem.rdMolDescriptors", extra="molecules").Properties(_PROPERTIES.split())
