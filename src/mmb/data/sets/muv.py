"""MUV: 93,087 compounds, 17 tasks with 24 to 30 positives each, 84% of labels missing.

Maximum Unbiased Validation (Rohrer and Baumann, J. Chem. Inf. Model. 2009): actives of PubChem assays among
decoys chosen to be hard to tell apart by simple features, as MoleculeNet distributes it; no license stated.
Features and split are those of `moleculenet`: graphs or fingerprints, split by Bemis-Murcko
scaffolds (80 / 10 / 10, nothing random), or at random by a seed.
"""

from mmb.data.sets.moleculenet import MoleculeSet

_SET = MoleculeSet(
    name="muv",
    rows=(93087,),
    tasks=17,
    url="https://deepchemdata.s3-us-west-1.amazonaws.com/datasets/muv.csv.gz",
    table="muv",
)
get, prepare, load = _SET.get, _SET.prepare, _SET.load
