"""Projections: in the set, nothing in the set is nearer, points of the set stay."""

import pytest
import torch

import mmb
from mmb import projections

SETS = {
    "nonnegative": (projections.nonnegative(), lambda a: (a >= 0).all()),
    "box": (projections.box(-0.5, 1.0), lambda a: ((a >= -0.5) & (a <= 1.0)).all()),
    "ball": (projections.ball(1.5), lambda a: a.norm() <= 1.5 + 1e-9),
    "simplex": (projections.simplex(2.0), lambda a: (a >= 0).all() and abs(a.sum() - 2.0) < 1e-9),
}


@pytest.fixture(params=SETS)
def projection(request):
    return SETS[request.param]


def points(count=200, size=5):
    return 3 * torch.randn(count, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_result_is_the_nearest_point_of_the_set(projection):
    """The nearest point p of a convex set is the one with (a - p)'(q - p) <= 0 for every q in the set."""
    project, inside = projection
    projected = [project(point) for point in points()]
    for point, nearest in zip(points(), projected, strict=True):
        assert inside(nearest)
        gaps = torch.stack(projected) - nearest
        assert (gaps @ (point - nearest) <= 1e-9).all()


def test_a_product_projects_each_part():
    project = projections.product(weights=projections.simplex(), price=projections.nonnegative(), free=None)
    point = {"weights": torch.tensor([2.0, 0.0]), "price": torch.tensor(-1.0), "free": torch.tensor(-1.0)}
    found = project(point)
    expected = {"weights": torch.tensor([1.0, 0.0]), "price": torch.tensor(0.0), "free": torch.tensor(-1.0)}
    torch.testing.assert_close(found, expected)
    with pytest.raises(ValueError, match=r"names.*price"):
        project({"weights": torch.ones(2)})
    with pytest.raises(TypeError, match=r"price.*nonnegative\(\)"):
        projections.product(price=projections.nonnegative)


@pytest.mark.parametrize("make", projections.MAKERS)
def test_a_projection_that_was_not_called_is_an_error(make):
    with pytest.raises(TypeError, match=rf"project_dual.*call it.*{make.__name__}"):
        mmb.Problem(lambda x, a, y, b: x, None, 1, make)


def test_twice_is_once(projection):
    project, _ = projection
    for point in points():
        torch.testing.assert_close(project(project(point)), project(point))


def test_works_under_vmap(projection):
    project, _ = projection
    torch.testing.assert_close(torch.vmap(project)(points()), torch.stack([project(p) for p in points()]))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: projections.box(1.0, 0.0), "low.*high"),
        (lambda: projections.ball(0.0), "radius"),
        (lambda: projections.simplex(-1.0), "total"),
        (lambda: projections.box(torch.zeros(2), torch.ones(2)), "low.*high"),
        (lambda: projections.ball(float("inf")), "radius.*inf"),
        (lambda: projections.simplex("1"), "total.*'1'"),
    ],
)
def test_bad_sets(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_one_tensor_at_a_time(projection):
    project, _ = projection
    with pytest.raises(TypeError, match=r"dual.*tensor.*dict"):
        project({"a": torch.ones(2)})
