"""HIV: 41,127 compounds, whether each inhibits the replication of HIV, 3.5% active, no label missing.

From the AIDS antiviral screen of the Drug Therapeutics Program, US National Cancer Institute, as MoleculeNet
distributes it (Wu et al., Chemical Science 2018), no license stated; one task with 1,443 positives. Features
and split are those of `moleculenet`: graphs or fingerprints, split by Bemis-Murcko scaffolds (80
/ 10 / 10, nothing random), or at random by a seed.
"""

from mmb.data.sets.moleculenet import MoleculeSet

_SET = MoleculeSet(
    name="hiv",
    rows=(41127,),
    tasks=1,
    url="https://deepchemdata.s3-us-west-1.amazonaws.com/datasets/HIV.csv",
    table="hiv",
)
get, prepare, load = _SET.get, _SET.prepare, _SET.load
