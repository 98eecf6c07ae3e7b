"""BBBP: 2,039 compounds, whether each passes the blood-brain barrier, 77% do, no label missing.

From Martins et al. (J. Chem. Inf. Model. 2012), as MoleculeNet distributes it (Wu et al., Chemical Science
2018), without the molecules that cannot be read; no license stated. One task. Features and split are those of
`moleculenet`: graphs or fingerprints, split by Bemis-Murcko scaffolds (80 / 10 / 10, nothing random),
or at random by a seed.
"""

from mmb.data.sets.moleculenet import MoleculeSet

_SET = MoleculeSet(
    name="bbbp",
    rows=(2039,),
    tasks=1,
    url="https://deepchemdata.s3-us-west-1.amazonaws.com/datasets/BBBP.csv",
    table="bbbp",
)
get, prepare, load = _SET.get, _SET.prepare, _SET.load
