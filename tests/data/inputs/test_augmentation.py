"""Random changes of images: exact where they can be, in their range where they cannot."""

import pytest
import torch

from mmb.data.inputs.augmentation import CHANGES, NAMES, changed, check_names


def images(n=64, size=8):
    generator = torch.Generator().manual_seed(1)
    return torch.rand(n, 3, size, size, generator=generator) * 0.5 + 0.25


def seeded():
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize(
    ("name", "outcomes"),
    [
        ("flip_vertical", [lambda x: x, lambda x: x.flip(1)]),
        ("turn", [lambda x, k=k: torch.rot90(x, k, (1, 2)) for k in range(4)]),
    ],
)
def test_flips_and_turns_are_exact_and_all_happen(name, outcomes):
    before = images()
    seen = set()
    for one, found in zip(before, changed(before, [name], seeded()), strict=True):
        fits = [k for k, outcome in enumerate(outcomes) if torch.allclose(outcome(one), found, atol=1e-4)]
        assert len(fits) == 1
        seen |= {*fits}
    assert seen == {*range(len(outcomes))}


def test_zoom_keeps_the_middle_and_rotation_the_distance_from_it():
    disc = (torch.linspace(-1, 1, 33).square() + torch.linspace(-1, 1, 33).square().unsqueeze(1)) < 0.36
    disc = disc.float().expand(40, 1, 33, 33)
    assert (changed(disc, ["rotate"], seeded()) - disc).abs().mean() < 0.02  # it looks the same turned
    areas = changed(disc, ["zoom"], seeded()).sum((1, 2, 3)) / disc[0].sum()
    assert 0.6 < areas.min() < 0.8
    assert 1.25 < areas.max() < 1.6


def test_brightness_scales_and_contrast_keeps_the_mean():
    before = images()
    ratio = changed(before, ["brightness"], seeded()) / before
    assert ratio.flatten(1).std(1).max() < 1e-5
    assert 0.8 <= ratio.min() < 0.9
    assert 1.1 < ratio.max() <= 1.2501
    after = changed(before, ["contrast"], seeded())
    torch.testing.assert_close(after.mean((1, 2, 3)), before.mean((1, 2, 3)))
    spread = after.std((1, 2, 3)) / before.std((1, 2, 3))
    assert 0.79 < spread.min() < 0.9
    assert 1.1 < spread.max() < 1.26


def test_all_together_stay_in_range_and_follow_the_generator():
    first, second = (changed(images(), CHANGES, seeded()) for _ in range(2))
    assert torch.equal(first, second)
    assert first.min() >= 0
    assert first.max() <= 1


def test_an_unknown_name_gets_the_nearest():
    assert check_names(NAMES) == NAMES
    with pytest.raises(ValueError, match=r"augment.*rotat.*'rotate'"):
        check_names(["rotat"])
