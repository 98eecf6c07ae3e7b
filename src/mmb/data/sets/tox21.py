"""Tox21: 7,831 compounds, 12 nuclear receptor and stress response assays, 17% of labels missing.

From the Tox21 data challenge (2014), as MoleculeNet distributes it (Wu et al., Chemical Science 2018);
measured by US federal agencies, no license stated. 2.9% to 16% of a task's measured labels are positive.
Features and split are those of `moleculenet`: graphs or fingerprints, split by Bemis-Murcko
scaffolds (80 / 10 / 10, nothing random), or at random by a seed.
"""

from mmb.data.sets.moleculenet import MoleculeSet

_SET = MoleculeSet(
    name="tox21",
    rows=(7831,),
    tasks=12,
    url="https://deepchemdata.s3-us-west-1.amazonaws.com/datasets/tox21.csv.gz",
    table="tox21",
)
get, prepare, load = _SET.get, _SET.prepare, _SET.load
