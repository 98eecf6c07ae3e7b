"""Numbers of combinations, places of values and the values themselves belong together."""

import itertools

from mmb.training.studies.grid import Grid

VALUES = {"optimizer.lr": [0.1, 0.01, 0.001], "model.hidden": [[4], [8, 4]]}


def test_every_combination_has_one_number():
    grid = Grid(VALUES)
    found = [grid.places(number) for number in range(len(grid))]
    assert [grid.number(places) for places in found] == list(range(6))
    assert [tuple(grid.values(places).values()) for places in found] == list(
        itertools.product(*VALUES.values())
    )


def test_the_order_of_the_keys_of_a_combination_does_not_matter():
    grid = Grid(VALUES)
    places = grid.places(3)
    assert grid.number(dict(reversed(places.items()))) == 3
