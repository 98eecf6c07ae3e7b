"""Descriptors of molecules: their values, their scale, and what has none."""

import numpy as np
import pytest
import torch

pytest.importorskip("rdkit")
pytest.importorskip("ogb")
from rdkit import Chem
from rdkit.Chem import Descriptors

from mmb.data.inputs import descriptors
from mmb.data.inputs.descriptors import COUNT, describe
from mmb.data.inputs.featurize import Featurizer, parse
from mmb.data.inputs.molecule_cache import PackedBits

ASPIRIN, ETHANOL = "CC(=O)Oc1ccccc1C(=O)O", "CCO"
MEANS, DEVIATIONS = (np.array(text.split(), float) for text in (descriptors._MEANS, descriptors._DEVIATIONS))


def unscaled(smiles: str) -> np.ndarray:
    return describe([Chem.MolFromSmiles(smiles)])[0] * DEVIATIONS + MEANS


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("amw", Descriptors.MolWt),
        ("tpsa", Descriptors.TPSA),
        ("CrippenClogP", Descriptors.MolLogP),
        ("CrippenMR", Descriptors.MolMR),
        ("NumAromaticRings", Descriptors.NumAromaticRings),
        ("FractionCSP3", Descriptors.FractionCSP3),
        ("NumHeteroatoms", Descriptors.NumHeteroatoms),
    ],
)
def test_they_are_the_numbers_of_rdkit(name, function):
    place = descriptors._PROPERTIES.split().index(name)
    found = unscaled(ASPIRIN)[place]
    assert found == pytest.approx(function(Chem.MolFromSmiles(ASPIRIN)), rel=1e-5, abs=1e-5)


def test_surface_areas_and_quantum_numbers_follow():
    molecule, first = Chem.MolFromSmiles(ASPIRIN), len(descriptors._PROPERTIES.split())
    charges = [getattr(Descriptors, f"PEOE_VSA{k}")(molecule) for k in range(1, 15)]
    assert unscaled(ASPIRIN)[first : first + 14] == pytest.approx(charges, rel=1e-5, abs=1e-4)
    carbons = COUNT - 42  # the first quantum number
    assert unscaled(ASPIRIN)[carbons] == pytest.approx(9, rel=1e-5)
    assert len(MEANS) == len(DEVIATIONS) == COUNT == first + 36 + 42


def test_every_deviation_can_be_divided_by():
    assert (DEVIATIONS > 0).all()
    assert np.isfinite(MEANS).all()


def test_numbers_far_away_are_brought_near():
    found = describe([Chem.MolFromSmiles("C" * 300)])
    assert found.max() == 4
    assert found.min() >= -4
    assert found.dtype == np.float32


def test_what_cannot_be_computed_is_as_of_an_average_molecule():
    unread, metal = None, parse("[Na+].[Cl-].[Fe]", strict=True)
    found = describe([unread, metal])
    assert not found[0].any()
    assert np.isfinite(found).all()
    assert found[1].any()


def test_molecules_that_are_not_sanitized_do_no_harm():
    found = describe([Chem.MolFromSmiles("c1cccc1", sanitize=False), Chem.MolFromSmiles(ETHANOL)])
    assert np.isfinite(found).all()
    assert np.array_equal(found[1], describe([Chem.MolFromSmiles(ETHANOL)])[0])


def test_they_follow_the_bits_of_a_fingerprint():
    arrays = Featurizer("descriptors", bits=64)([ASPIRIN, "not smiles", ETHANOL])
    bits = Featurizer("fingerprint", bits=64)([ASPIRIN, "not smiles", ETHANOL])
    assert np.array_equal(arrays["packed"], bits["packed"])
    inputs = PackedBits(torch.from_numpy(arrays["packed"]), torch.from_numpy(arrays["descriptors"]))
    found = inputs.to("cpu")[torch.tensor([2, 0])]
    assert found.shape == (2, 64 + COUNT)
    assert torch.equal(found[:, :64], PackedBits(inputs.packed)[torch.tensor([2, 0])])
    assert np.array_equal(found[:, 64:], describe([Chem.MolFromSmiles(text) for text in (ETHANOL, ASPIRIN)]))
